//! `pgfresh template import --statistics`: prints a database's planner statistics.

use std::path::Path;

use plans::import::{self, Gaps, StatisticsServer};
use plans::redact::Redaction;
use plans::{RelationName, Statistics};

use crate::context::Context;
use crate::failure::Failure;
use crate::notice::notice;
use crate::output::print;
use crate::production_statistics::read_file;
use crate::progress::some_of;

pub(super) fn import(context: &Context, source: &str, redact: &[String]) -> Result<(), Failure> {
    let redaction = Redaction::parse(redact)?;
    let mut statistics = if StatisticsServer::is_url(source) {
        let import = import::read(StatisticsServer::from_url(source)?)?;
        if !context.verbosity.is_quiet() {
            report(&import.gaps);
        }
        import.statistics
    } else {
        read_file(Path::new(source))?
    };
    redaction.apply(&mut statistics)?;
    if !context.verbosity.is_quiet() {
        report_redacted(&statistics);
    }
    print(statistics.to_json());
    Ok(())
}

fn report_redacted(statistics: &Statistics) {
    let of_relation = |relation: &plans::RelationStatistics| {
        let columns = relation.columns.iter().filter(|column| column.redacted);
        columns.map(|column| format!("{}.{}", relation.name, column.column)).collect::<Vec<_>>()
    };
    let mut redacted: Vec<_> = statistics.relations.iter().flat_map(of_relation).collect();
    redacted.dedup();
    if !redacted.is_empty() {
        notice!("pgfresh: redacted {}", some_of(&redacted));
    }
}

/// Prints which relations have incomplete statistics.
fn report(gaps: &Gaps) {
    for (relations, reason) in [
        (&gaps.without_privilege, "the role lacks SELECT on some of their columns"),
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

fn names(relations: &[RelationName]) -> String {
    some_of(&relations.iter().map(|name| format!("{}.{}", name.schema, name.name)).collect::<Vec<_>>())
}
