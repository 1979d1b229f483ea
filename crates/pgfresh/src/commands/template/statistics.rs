//! `pgfresh template import --statistics`: prints the planner's statistics of a database.

use plans::RelationName;
use plans::import::{self, Gaps, StatisticsServer};

use crate::context::Context;
use crate::failure::Failure;
use crate::notice::notice;
use crate::output::print;

/// Number of names in a message.
const NAMES: usize = 3;

pub(super) fn import(context: &Context, source: &str) -> Result<(), Failure> {
    let import = import::read(&StatisticsServer::from_url(source)?)?;
    if !context.verbosity.is_quiet() {
        report(&import.gaps);
    }
    print(import.statistics.to_json());
    Ok(())
}

/// Prints which relations have incomplete statistics.
fn report(gaps: &Gaps) {
    for (relations, reason) in [
        (&gaps.without_privilege, "the role may not SELECT all their columns"),
        (&gaps.row_security, "row-level security hides them from the role"),
        (&gaps.locked, "another session has locked them: their size is that of the last ANALYZE"),
        (&gaps.never_analyzed, "they have never been analyzed"),
        (&gaps.extended, "only the tables' owner sees these extended statistics"),
    ] {
        if !relations.is_empty() {
            notice!("pgfresh: incomplete statistics of {}: {reason}", names(relations));
        }
    }
}

/// Lists some names and the number of the others.
fn names(relations: &[RelationName]) -> String {
    let named: Vec<_> =
        relations.iter().take(NAMES).map(|name| format!("{}.{}", name.schema, name.name)).collect();
    let named = named.join(", ");
    match relations.len().saturating_sub(NAMES) {
        0 => named,
        others => format!("{named} and {others} more"),
    }
}
