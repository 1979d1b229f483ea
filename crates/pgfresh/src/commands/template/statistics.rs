//! `pgfresh template import --statistics`: prints the planner's statistics of a database.

use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

use plans::import::{self, Gaps, StatisticsServer};
use plans::redact::Redaction;
use plans::{RelationName, Statistics};
use storage::Attempt;

use crate::context::Context;
use crate::failure::Failure;
use crate::notice::notice;
use crate::output::print;
use crate::progress::some_of;

pub(super) fn import(context: &Context, source: &str, redact: &[String]) -> Result<(), Failure> {
    let redaction = Redaction::parse(redact)?;
    let mut statistics = if StatisticsServer::is_url(source) {
        let import = import::read(&StatisticsServer::from_url(source)?)?;
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

fn read_file(path: &Path) -> Result<Statistics, Failure> {
    let file = fs::read(path).attempt_given("read", path)?;
    let mut statistics = Statistics::parse(&file)
        .map_err(|error| Failure::new(format!("\"{}\" has no valid statistics: {error}", path.display())))?;
    // The output of pg_dump does not say when it was written.
    if statistics.taken == 0 {
        let modified = fs::metadata(path).and_then(|file| file.modified()).attempt_given("read", path)?;
        statistics.taken = modified.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    }
    Ok(statistics)
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

fn names(relations: &[RelationName]) -> String {
    some_of(&relations.iter().map(|name| format!("{}.{}", name.schema, name.name)).collect::<Vec<_>>())
}
