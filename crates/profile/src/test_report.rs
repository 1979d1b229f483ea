//! Reports on a profile's individual tests, as tables for humans and as JSON for programs.

use std::collections::BTreeMap;

use report::{
    Cell, Column, Finding, MeasuredTest, MeasuredTests, Quantity, Table, Unit, as_f64, counted, cut,
};
use serde_json::{Value, json};

use crate::circumstances::{percent, seconds};
use crate::interner::Interner;
use crate::test_records::{Repetition, RepetitionKind, TestRecord};
use pgwire::NormalizedStatement;

/// Maximum number of rows in the table of tests.
const LINES: usize = 20;
/// How often a test must run a query to cause a finding.
const MIN_RUNS_FOR_FINDING: u64 = 10;
/// Maximum width of a statement in a finding, in columns.
const STATEMENT_WIDTH: usize = 120;
/// Maximum number of tests to name in a finding.
const MAX_NAMED_TESTS: usize = 3;

/// All tests' records and the statements they refer to.
#[derive(Clone, Copy)]
pub(crate) struct Tests<'a> {
    pub(crate) records: &'a [TestRecord],
    pub(crate) statements: &'a Interner<NormalizedStatement>,
}

/// A query that tests repeat, with the totals over all tests.
#[derive(Default)]
struct RepeatedQuery<'a> {
    seconds: f64,
    runs: u64,
    tests: u64,
    /// Number of runs in the test that repeats the query most.
    most: u64,
    /// Name of that test.
    test: &'a str,
}

impl<'a> RepeatedQuery<'a> {
    fn add(&mut self, record: &'a TestRecord, repetition: &Repetition) {
        self.seconds += repetition.seconds;
        self.runs += repetition.count;
        self.tests += 1;
        if repetition.count > self.most {
            (self.most, self.test) = (repetition.count, &record.name);
        }
    }
}

fn name(kind: RepetitionKind) -> &'static str {
    match kind {
        RepetitionKind::NPlusOne { .. } => "N+1",
        RepetitionKind::Identical => "identical",
    }
}

impl<'a> Tests<'a> {
    /// Yields the records that belong to exactly one test.
    fn single_tests(self) -> impl Iterator<Item = &'a TestRecord> {
        self.records.iter().filter(|record| record.is_test)
    }

    /// Returns true if a client named a test.
    pub(crate) fn has_names(self) -> bool {
        self.records.iter().any(|record| record.is_named)
    }

    /// If no client named a test, returns advice on how to get test names. If some tests share databases, returns a
    /// note about that. Otherwise returns `None`.
    pub(crate) fn advice(self) -> Option<String> {
        let is_shared = self.records.iter().any(|record| !record.is_test);
        let shared = if is_shared {
            "Tests share databases, so pgfresh does not look for N+1 queries in them."
        } else {
            ""
        };
        if self.has_names() {
            return is_shared.then(|| shared.to_owned());
        }
        let names = "To get names and N+1 queries of tests, use a pgfresh client (Python, Node, Go, Java or Rust) \
            under \"pgfresh run --profile\". Without a client, run \"pgfresh release DATABASE --test NAME\" after each \
            test.";
        Some(format!("{shared} {names}").trim_start().to_owned())
    }

    /// Returns a table with one row per test. `wall` is the suite's duration.
    pub(crate) fn table(self, wall: f64) -> Table {
        let numbers = [
            "in the database",
            "share",
            "statements",
            "rows",
            "sessions",
            "commits",
            "longest",
            "N+1",
            "identical",
        ];
        let mut table = Table::numbers("Tests", "test", numbers);
        for record in self.single_tests().take(LINES) {
            let count = |count| Cell::from(Quantity::new(as_f64(count), Unit::Count));
            let counts = [record.statements, record.rows, record.sessions, record.commits].map(count);
            let time = |time| Cell::from(Quantity::new(time, Unit::Seconds));
            let longest = record.longest.map_or(Cell::Missing, |(_, longest)| time(longest));
            let share = percent(if wall > 0.0 { record.time.wall / wall } else { 0.0 });
            let repeated = ["N+1", "identical"].map(|kind| {
                let of_kind = record.repetitions.iter().filter(|one| name(one.kind) == kind);
                of_kind.map(|one| one.count).max().map_or(Cell::Missing, count)
            });
            let first = [Cell::from(record.name.as_str()), time(record.time.sessions), share.into()];
            table.add_row(first.into_iter().chain(counts).chain([longest]).chain(repeated));
        }
        if let Some(advice) = self.advice() {
            table.set_remark(advice);
        }
        table
    }

    /// Returns a table with one row for each repeated query, longest time first. Returns `None` if no query
    /// was repeated.
    pub(crate) fn repeated_queries(self) -> Option<Table> {
        let mut queries: BTreeMap<(u32, &str), RepeatedQuery<'_>> = BTreeMap::new();
        for record in self.single_tests() {
            for one in &record.repetitions {
                queries.entry((one.statement, name(one.kind))).or_default().add(record, one);
            }
        }
        let mut queries: Vec<_> = queries.into_iter().collect();
        queries.sort_by(|(_, one), (_, other)| other.seconds.total_cmp(&one.seconds));
        let columns = ["time", "runs", "tests", "most runs"].map(Column::right).into_iter();
        let columns = columns.chain(["in", "kind", "statement"].map(Column::left));
        let mut table = Table::new("Repeated queries", columns);
        for ((statement, kind), query) in queries.iter().take(LINES) {
            let count = |count| Cell::from(Quantity::new(as_f64(count), Unit::Count));
            table.add_row([
                Quantity::new(query.seconds, Unit::Seconds).into(),
                count(query.runs),
                count(query.tests),
                count(query.most),
                query.test.into(),
                (*kind).into(),
                Cell::statement(self.text(*statement)),
            ]);
        }
        (!queries.is_empty()).then_some(table)
    }

    fn summarize(&self, repetition: &Repetition) -> String {
        let (count, kind) = (repetition.count, name(repetition.kind));
        format!("{count} × {} ({kind}, {})", self.text(repetition.statement), seconds(repetition.seconds))
    }

    fn text(self, statement: u32) -> &'a str {
        &self.statements.get(statement).text
    }

    /// Returns each test's measured values, for CI systems. `suite` is the suite's name in the CI system.
    pub(crate) fn measured(&self, suite: &str, wall: f64) -> MeasuredTests {
        let is_n_plus_one = |one: &&Repetition| matches!(one.kind, RepetitionKind::NPlusOne { .. });
        let tests = self.single_tests().map(|record| {
            let most = record.repetitions.iter().filter(is_n_plus_one).map(|one| one.count).max();
            let counts = [
                ("statements", record.statements),
                ("rows", record.rows),
                ("sessions", record.sessions),
                ("commits", record.commits),
                ("n_plus_one", most.unwrap_or(0)),
            ];
            let seconds = ("seconds", format!("{:.6}", record.time.sessions));
            let counts = counts.map(|(name, count)| (name, count.to_string()));
            MeasuredTest {
                name: record.name.clone(),
                seconds: record.time.wall,
                properties: std::iter::once(seconds).chain(counts).collect(),
                notes: record.repetitions.iter().map(|one| self.summarize(one)).collect(),
                failure: None,
                skipped: None,
            }
        });
        MeasuredTests { name: suite.to_owned(), seconds: wall, tests: tests.collect() }
    }

    /// Returns all records as a JSON value.
    pub(crate) fn to_json(self) -> Value {
        self.records.iter().map(|record| self.record_to_json(record)).collect()
    }

    fn record_to_json(&self, record: &TestRecord) -> Value {
        let of = |wanted: fn(RepetitionKind) -> bool| -> Value {
            let those = record.repetitions.iter().filter(|repetition| wanted(repetition.kind));
            let one = |repetition: &Repetition| {
                let mut value = json!({
                    "statement": self.text(repetition.statement),
                    "count": repetition.count,
                    "seconds": repetition.seconds,
                });
                if let RepetitionKind::NPlusOne { after } = repetition.kind {
                    value["after"] = json!(after.map(|after| self.text(after)));
                }
                value
            };
            those.map(one).collect()
        };
        let longest = record
            .longest
            .map(|(statement, seconds)| json!({ "statement": self.text(statement), "seconds": seconds }));
        json!({
            "name": record.name,
            "is_test": record.is_test,
            "seconds": record.time.sessions,
            "wall_seconds": record.time.wall,
            "statements": record.statements,
            "rows": record.rows,
            "sessions": record.sessions,
            "commits": record.commits,
            "longest": longest,
            "n_plus_one": of(|kind| matches!(kind, RepetitionKind::NPlusOne { .. })),
            "identical": of(|kind| kind == RepetitionKind::Identical),
        })
    }

    /// Yields a short line for each of the `count` slowest tests.
    pub(crate) fn slowest(self, count: usize) -> impl Iterator<Item = String> + use<'a> {
        self.single_tests().take(count).map(move |record| {
            let n_plus_one =
                record.repetitions.iter().find(|one| matches!(one.kind, RepetitionKind::NPlusOne { .. }));
            let n_plus_one =
                n_plus_one.map_or_else(String::new, |one| format!(", N+1: {}", self.summarize(one)));
            let time = seconds(record.time.sessions);
            let statements = usize::try_from(record.statements).unwrap_or(usize::MAX);
            let statements = counted(statements, "statement", "statements");
            format!("{time} {}: {statements}{n_plus_one}", record.name)
        })
    }

    /// Returns a finding about queries that tests run once for each row.
    pub(crate) fn finding(&self) -> Option<Finding> {
        let of = |record: &TestRecord| {
            let many = |one: &&Repetition| {
                one.count >= MIN_RUNS_FOR_FINDING && matches!(one.kind, RepetitionKind::NPlusOne { .. })
            };
            let found = record.repetitions.iter().find(many);
            found.map(|repetition| (record.name.clone(), repetition.clone()))
        };
        let found: Vec<(String, Repetition)> = self.single_tests().filter_map(of).collect();
        let named = found.iter().take(MAX_NAMED_TESTS).map(|(test, repetition)| {
            let after = match repetition.kind {
                RepetitionKind::NPlusOne { after: Some(after) } => {
                    format!(", after {}", cut(self.text(after), STATEMENT_WIDTH))
                }
                _ => String::new(),
            };
            let (count, text) = (repetition.count, cut(self.text(repetition.statement), STATEMENT_WIDTH));
            format!(
                "{test} runs {text} {count} times with different values ({}{after})",
                seconds(repetition.seconds)
            )
        });
        let others = found.len().saturating_sub(MAX_NAMED_TESTS);
        let others = match others {
            0 => String::new(),
            1 => "; so does 1 more test".to_owned(),
            _ => format!("; so do {others} more tests"),
        };
        (!found.is_empty()).then(|| Finding {
            name: "One query for each row (N+1)".to_owned(),
            evidence: format!("{}{others}.", named.collect::<Vec<_>>().join("; ")),
            gain: None,
            remedy:
                "Fetch them in one query: a join, IN or = ANY, or what the ORM has for that (prefetch, eager \
            loading)."
                    .to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Time;

    #[test]
    fn test_report_lists_tests_and_n_plus_one() {
        let mut statements = Interner::default();
        let [all, each] = ["SELECT * FROM authors", "SELECT * FROM books WHERE author = 1"]
            .map(|sql| statements.intern(NormalizedStatement::read(sql)));
        let repetition = |kind| Repetition { statement: each, count: 50, seconds: 0.5, kind };
        let record = |name: &str, kinds: &[RepetitionKind]| TestRecord {
            name: name.to_owned(),
            is_test: true,
            time: Time { wall: 0.5, sessions: 1.0, saved: 0.0 },
            statements: 51,
            longest: Some((all, 0.25)),
            repetitions: kinds.iter().map(|kind| repetition(*kind)).collect(),
            ..TestRecord::default()
        };
        let slow = record("test_slow", &[RepetitionKind::NPlusOne { after: Some(all) }]);
        let records = [slow, record("test_same", &[RepetitionKind::Identical]), record("test_fine", &[])];
        let tests = Tests { records: &records, statements: &statements };
        let value = tests.to_json();
        assert_eq!(value[0]["name"], "test_slow");
        assert_eq!((&value[0]["statements"], &value[0]["seconds"]), (&json!(51), &json!(1.0)));
        assert_eq!(value[0]["n_plus_one"][0]["count"], 50);
        assert_eq!(value[0]["n_plus_one"][0]["statement"], "SELECT * FROM books WHERE author = ?");
        assert_eq!(value[0]["n_plus_one"][0]["after"], "SELECT * FROM authors");
        assert_eq!((&value[1]["n_plus_one"], &value[1]["identical"][0]["count"]), (&json!([]), &json!(50)));
        let finding = tests.finding().unwrap();
        assert_eq!(
            finding.evidence,
            "test_slow runs SELECT * FROM books WHERE author = ? 50 times with different values (500 ms, after SELECT * \
            FROM authors)."
        );
        let measured = tests.measured("pytest", 10.0);
        let slow = &measured.tests[0];
        assert_eq!((slow.name.as_str(), slow.seconds), ("test_slow", 0.5));
        let property = |test: usize, name: &str| {
            let found = measured.tests[test].properties.iter().find(|(property, _)| *property == name);
            found.map(|(_, value)| value.clone())
        };
        assert_eq!(property(0, "seconds").as_deref(), Some("1.000000"));
        assert_eq!([0, 1, 2].map(|test| property(test, "n_plus_one").unwrap()), ["50", "0", "0"]);
        assert_eq!(property(0, "statements").as_deref(), Some("51"));
        assert!(slow.notes[0].starts_with("50 × SELECT * FROM books WHERE author = ? (N+1, "), "{slow:?}");
        let table = tests.table(10.0).to_json();
        assert_eq!(
            (&table["rows"][0]["test"], &table["rows"][0]["share"]),
            (&json!("test_slow"), &json!("5 %"))
        );
        let slowest = tests.slowest(1).next().unwrap();
        assert!(slowest.starts_with("1.00 s test_slow: 51 statements, N+1: 50 × SELECT"), "{slowest}");
        assert!(Tests { records: &records[2..], ..tests }.finding().is_none());
        let single = [TestRecord { statements: 1, ..record("test_one", &[]) }];
        let line = Tests { records: &single, ..tests }.slowest(1).next();
        assert_eq!(line.as_deref(), Some("1.00 s test_one: 1 statement"));
    }

    #[test]
    fn repeated_query_has_one_line() {
        let mut statements = Interner::default();
        let statement = statements.intern(NormalizedStatement::read("SELECT 1"));
        let record = |name: &str, count, kind| TestRecord {
            name: name.to_owned(),
            is_test: true,
            repetitions: vec![Repetition { statement, count, seconds: 0.5, kind }],
            ..TestRecord::default()
        };
        let n_plus_one = RepetitionKind::NPlusOne { after: None };
        let records = [
            record("one", 10, n_plus_one),
            record("most", 30, n_plus_one),
            record("last", 20, n_plus_one),
            record("same", 5, RepetitionKind::Identical),
        ];
        let tests = Tests { records: &records, statements: &statements };
        let table = tests.repeated_queries().unwrap().to_json();
        let rows = table["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 2, "{table}");
        let number = |column: &str| &rows[0][column]["value"];
        assert_eq!(["runs", "tests", "most runs"].map(number), [&json!(60.0), &json!(3.0), &json!(30.0)]);
        assert_eq!((&rows[0]["in"], &rows[0]["statement"]), (&json!("most"), &json!("SELECT ?")));
        assert_eq!((&rows[1]["kind"], &rows[1]["in"]), (&json!("identical"), &json!("same")));
        assert!(Tests { records: &[], ..tests }.repeated_queries().is_none());
    }

    #[test]
    fn advice_depends_on_names_and_sharing() {
        let statements = Interner::default();
        let record = |is_test, is_named| TestRecord { is_test, is_named, ..TestRecord::default() };
        let advice =
            |records: &[TestRecord]| Tests { records, statements: &statements }.advice().unwrap_or_default();
        for nameless in [&[][..], &[record(true, false)], &[record(false, false)]] {
            assert!(
                advice(nameless).contains("use a pgfresh client (Python, Node, Go, Java or Rust)"),
                "{nameless:?}"
            );
        }
        assert_eq!(advice(&[record(true, true)]), "");
        let some = advice(&[record(true, true), record(false, false)]);
        assert_eq!(some, "Tests share databases, so pgfresh does not look for N+1 queries in them.");
    }
}
