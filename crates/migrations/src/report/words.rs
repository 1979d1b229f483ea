//! Contains the phrases that several report formats share.

use plans::RelationName;
use report::{Quantity, Unit, counted, grouped};

use super::{BlockedStatement, BrokenStatement, MigrationReport, Prediction, ReportedStatement, TableSize};
use crate::{AdviceTopic, LockMode, ObservedStatement};

/// The documentation page with a section for each topic of advice.
const PAGE: &str = "docs/migrations.md";
/// Maximum number of relations that a phrase names.
const MAX_NAMES: usize = 3;
/// Factor by which a transaction must hold locks longer than its statement runs for the report to mention this.
const LONGER: f64 = 1.25;

/// Returns a rounded number of rows, such as `9,500`, `200 k` or `48 M`.
pub(super) fn rounded(number: f64) -> String {
    for (unit, sign) in [(1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if number >= 0.9995 * unit && number >= 9_999.5 {
            let scaled = number / unit;
            let decimals = usize::from(scaled < 9.95 && (scaled * 10.0).round() % 10.0 != 0.0);
            return format!("{scaled:.decimals$} {sign}");
        }
    }
    grouped(format_args!("{:.0}", number.max(0.0)))
}

/// Returns a time, such as `310 ms`.
pub(super) fn seconds(value: f64) -> String {
    Quantity::new(value, Unit::Seconds).to_string()
}

/// Returns a range of times, such as `70 to 110 s`.
pub(super) fn range(prediction: Prediction) -> String {
    let Prediction { low, high } = prediction;
    let units = [(7200.0, 3600.0, "h"), (600.0, 60.0, "min"), (1.0, 1.0, "s"), (0.001, 0.001, "ms")];
    let Some((_, unit, sign)) = units.into_iter().find(|(least, ..)| high >= *least) else {
        return "less than 1 ms".to_owned();
    };
    let (from, to) = (two_digits(low / unit), two_digits(high / unit));
    if from == to { format!("about {to} {sign}") } else { format!("{from} to {to} {sign}") }
}

/// Rounds to two significant digits, and to whole numbers from 100 on.
fn two_digits(value: f64) -> String {
    match value {
        value if value < 0.095 => format!("{value:.2}"),
        value if value < 9.95 => format!("{value:.1}").trim_end_matches(".0").to_owned(),
        value if value < 99.5 => format!("{value:.0}"),
        value => format!("{:.0}", (value / 10.0).round() * 10.0),
    }
}

/// Returns what a lock mode blocks in other sessions.
fn blocked_by(mode: LockMode) -> &'static str {
    match mode {
        LockMode::AccessExclusive => "blocks reads and writes",
        LockMode::Exclusive | LockMode::ShareRowExclusive | LockMode::Share => "blocks writes, not reads",
        LockMode::ShareUpdateExclusive => "blocks neither reads nor writes",
        LockMode::RowExclusive | LockMode::RowShare | LockMode::AccessShare => "blocks no other statement",
    }
}

/// Groups the locked relations by lock mode, starting with the strongest. Leaves out the modes that reads and writes of
/// rows take.
pub(super) fn locks_by_mode(observed: &ObservedStatement) -> Vec<(LockMode, Vec<&RelationName>)> {
    let modes = LockMode::ALL.into_iter().rev().take_while(|mode| *mode >= LockMode::ShareUpdateExclusive);
    let of_mode = |mode| {
        let locks = observed.locks.iter().filter(move |lock| lock.mode == mode && !lock.kind.is_index());
        (mode, locks.map(|lock| &lock.relation).collect::<Vec<_>>())
    };
    modes.map(of_mode).filter(|(_, relations)| !relations.is_empty()).collect()
}

/// Joins names. Lists at most three of them and counts the rest.
fn names<'a>(relations: impl IntoIterator<Item = &'a RelationName>) -> String {
    let all: Vec<_> = relations.into_iter().map(ToString::to_string).collect();
    let more = all.len().saturating_sub(MAX_NAMES);
    let named = all[..all.len() - more].join(", ");
    if more == 0 { named } else { format!("{named} and {more} more") }
}

/// Returns phrases that describe the locks, such as `ACCESS EXCLUSIVE on orders: blocks reads and writes`.
pub(super) fn locks(observed: &ObservedStatement) -> Vec<String> {
    let phrase = |(mode, relations): (LockMode, Vec<&RelationName>)| {
        format!("{mode} on {}: {}", names(relations), blocked_by(mode))
    };
    locks_by_mode(observed).into_iter().map(phrase).collect()
}

/// Returns phrases that list the rewritten, emptied and scanned relations.
pub(super) fn work(observed: &ObservedStatement) -> Vec<String> {
    let mut phrases = Vec::new();
    let tables = || observed.rewrites.iter().filter(|rewrite| rewrite.table.is_none());
    let emptied: Vec<_> =
        tables().filter(|rewrite| rewrite.is_emptied).map(|rewrite| &rewrite.relation).collect();
    if !emptied.is_empty() {
        phrases.push(format!("empties {}", names(emptied)));
    }
    let rewritten: Vec<_> =
        tables().filter(|rewrite| !rewrite.is_emptied).map(|rewrite| &rewrite.relation).collect();
    let is_built = |rewrite: &&crate::Rewrite| rewrite.table.is_some() && !rewrite.is_emptied;
    let indexes = observed.rewrites.iter().filter(is_built).count();
    let indexes = (indexes > 0).then(|| counted(indexes, "index", "indexes"));
    let written: Vec<_> = (!rewritten.is_empty())
        .then(|| names(rewritten.iter().copied()))
        .into_iter()
        .chain(indexes)
        .collect();
    if !written.is_empty() {
        phrases.push(format!("rewrites {}", written.join(" and ")));
    }
    let is_only_read = |name: &&RelationName| !rewritten.contains(name);
    let read: Vec<_> = observed.scans.iter().map(|scan| &scan.relation).filter(is_only_read).collect();
    if !read.is_empty() {
        phrases.push(format!("reads all of {}", names(read)));
    }
    phrases
}

/// Returns one line that lists the locks, rewrites and scans.
pub(super) fn effects(observed: &ObservedStatement) -> String {
    let phrases: Vec<_> = locks(observed).into_iter().chain(work(observed)).collect();
    match (phrases.is_empty(), failure(observed), &observed.unobserved) {
        (false, ..) => phrases.join("; "),
        (true, Some(failure), _) => failure,
        (true, None, Some(cause)) => format!("its locks, rewrites and scans are unknown: {cause}"),
        (true, None, None) => changes(observed).unwrap_or_else(|| "nothing waits for it".to_owned()),
    }
}

/// Returns a phrase that counts the changed rows, such as `changes 19 k rows of orders`. `None` if there are none.
fn changes(observed: &ObservedStatement) -> Option<String> {
    let count = observed.changed.iter().map(|changed| report::as_f64(changed.rows)).sum();
    let tables = observed.changed.iter().map(|changed| &changed.relation);
    (count > 0.0).then(|| format!("changes {} of {}", rows(count), names(tables)))
}

/// Returns a sentence without a full stop if the statement failed or didn't end.
pub(super) fn failure(observed: &ObservedStatement) -> Option<String> {
    match &observed.error {
        Some(error) => Some(format!("fails: {} ({})", error.message, error.sqlstate)),
        None if observed.is_unfinished && observed.seconds > 0.0 => {
            Some(format!("did not end within {}", seconds(observed.seconds)))
        }
        None if observed.is_unfinished => Some("did not end".to_owned()),
        None => None,
    }
}

/// Returns the sentence from [`failure`], unless [`effects`] already contains it.
pub(super) fn failure_after_effects(observed: &ObservedStatement) -> Option<String> {
    failure(observed).filter(|failure| *failure != effects(observed))
}

/// Returns the lines about times. Empty if the statement's time doesn't grow with the tables.
pub(super) fn times(report: &MigrationReport, statement: &ReportedStatement) -> Vec<String> {
    let observed = &statement.observed;
    let mut lines = Vec::new();
    if !work(observed).is_empty() || statement.predicted.is_some() {
        let sizes = largest(report, observed);
        let here = sizes.map_or_else(String::new, |(here, _)| format!(" for {}", rows(here.rows)));
        let mut line = format!("{} here{here}", seconds(observed.seconds));
        if let Some(predicted) = statement.predicted {
            line += &format!("; {} in production", range(predicted));
            if let Some(production) = sizes.and_then(|(_, production)| production) {
                line += &format!(" ({})", size(production));
            }
        }
        lines.push(line);
    }
    lines.extend(holding(statement));
    lines
}

/// Returns a line if the transaction holds the locks much longer than the statement runs.
fn holding(statement: &ReportedStatement) -> Option<String> {
    let held = statement.predicted_held?;
    let alone = statement.predicted.map_or(0.0, |predicted| predicted.high);
    let is_notable = !locks(&statement.observed).is_empty() && held.high >= 0.01;
    (is_notable && held.high > LONGER * alone)
        .then(|| format!("its transaction holds the locks for {} in production", range(held)))
}

/// Returns the template and production size of the largest table that the statement rewrites or reads.
fn largest(report: &MigrationReport, observed: &ObservedStatement) -> Option<(TableSize, Option<TableSize>)> {
    let written = observed.rewrites.iter().map(|rewrite| rewrite.table.as_ref().unwrap_or(&rewrite.relation));
    let touched: Vec<_> = written.chain(observed.scans.iter().map(|scan| &scan.relation)).collect();
    let tables = report.tables.iter().filter(|table| table.database == observed.database);
    let tables = tables.filter(|table| touched.contains(&&table.relation));
    let bytes = |size: Option<TableSize>| size.map_or(0.0, |size| size.bytes);
    let key = |table: &&super::TableSizes| (bytes(table.production), table.here.bytes);
    let largest = tables.max_by(|one, other| {
        let (one, other) = (key(one), key(other));
        one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1))
    })?;
    Some((largest.here, largest.production))
}

/// Formats a number of rows, such as `48 M rows`.
fn rows(number: f64) -> String {
    let text = rounded(number);
    if text == "1" { "1 row".to_owned() } else { format!("{text} rows") }
}

/// Formats a table size, such as `48 M rows, 4.02 GB`.
pub(super) fn size(size: TableSize) -> String {
    format!("{}, {}", rows(size.rows), Quantity::new(size.bytes.round(), Unit::Bytes))
}

/// Returns a sentence about the suite's statements that have to wait, without a full stop.
pub(super) fn blocked(blocks: &[BlockedStatement]) -> Option<String> {
    let first = blocks.first()?;
    let number = counted(blocks.len(), "statement", "statements");
    let sentence =
        of_tests("blocks", &number, blocks.iter().map(|one| &one.tests), &first.statement, &first.tests);
    let reason = first.because.as_ref().map(|reason| format!(", {reason}")).unwrap_or_default();
    Some(sentence + &reason)
}

/// Returns a sentence about the suite's statements that fail, without a full stop.
pub(super) fn broken(breaks: &[BrokenStatement]) -> Option<String> {
    let first = breaks.first()?;
    let number = counted(breaks.len(), "statement", "statements");
    let sentence =
        of_tests("breaks", &number, breaks.iter().map(|one| &one.tests), &first.statement, &first.tests);
    Some(format!("{sentence}: {}", first.error))
}

fn of_tests<'a>(
    verb: &str,
    number: &str,
    tests: impl Iterator<Item = &'a Vec<String>>,
    first: &str,
    its_tests: &[String],
) -> String {
    let tests: std::collections::BTreeSet<_> = tests.flatten().collect();
    let tests = match tests.len() {
        0 => String::new(),
        many => format!(" of {}", counted(many, "test", "tests")),
    };
    let test = its_tests.first().map_or_else(String::new, |test| format!(" ({test})"));
    format!("{verb} {number}{tests}; the first: {}{test}", report::cut(first, 70))
}

/// Returns the documentation link for a topic of advice.
pub(super) fn page(topic: AdviceTopic) -> String {
    format!("{PAGE}#{}", topic.anchor())
}

impl ReportedStatement {
    /// Returns true if the report can omit the statement, because it blocks nothing, works on no table and didn't fail,
    /// and the laboratory observed it.
    pub(super) fn is_quiet(&self) -> bool {
        let Self { observed, blocks, breaks, advice, exception, .. } = self;
        let tells_nothing =
            blocks.is_empty() && breaks.is_empty() && advice.is_empty() && exception.is_none();
        tells_nothing
            && failure(observed).is_none()
            && observed.unobserved.is_none()
            && locks(observed).is_empty()
            && work(observed).is_empty()
    }

    /// Returns true if tables in the report omit the statement: either it is bookkeeping, or it only controls the
    /// session and doesn't affect tables.
    pub(super) fn is_left_out(&self) -> bool {
        self.is_bookkeeping || (self.is_about_session() && self.is_quiet())
    }

    /// Returns true if the statement may only control a session or a transaction, such as COMMIT or SET, or
    /// only reads rows. A SELECT may call a function that writes.
    pub(super) fn is_about_session(&self) -> bool {
        let Some(tag) = &self.observed.tag else { return false };
        let verbs = [
            "BEGIN",
            "START",
            "COMMIT",
            "ROLLBACK",
            "SAVEPOINT",
            "RELEASE",
            "SET",
            "RESET",
            "SHOW",
            "SELECT",
            "DISCARD",
            "PREPARE",
            "DEALLOCATE",
            "LISTEN",
            "UNLISTEN",
            "NOTIFY",
        ];
        let writes = self.observed.locks.iter().any(|lock| lock.mode >= LockMode::RowExclusive);
        !writes && verbs.contains(&tag.split(' ').next().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let texts = [3.0, 9_500.0, 200_000.0, 1_260_000.0, 48e6, 999_700.0, 2.5e9].map(rounded);
        assert_eq!(texts, ["3", "9,500", "200 k", "1.3 M", "48 M", "1 M", "2.5 G"]);
    }

    #[test]
    fn ranges_share_one_unit() {
        for (low, high, text) in [
            (70.4, 112.0, "70 to 110 s"),
            (0.0001, 0.0004, "less than 1 ms"),
            (0.02, 0.3, "20 to 300 ms"),
            (0.4, 1.6, "0.4 to 1.6 s"),
            (2.01, 1.99, "about 2 s"),
            (500.0, 1500.0, "8.3 to 25 min"),
            (3600.0, 9000.0, "1 to 2.5 h"),
        ] {
            assert_eq!(range(Prediction { low, high }), text);
        }
    }

    #[test]
    fn anchors_are_topics_in_lower_case() {
        assert_eq!(page(AdviceTopic::TypeChange), "docs/migrations.md#type-change");
    }
}
