//! Records one test's statements: how often each ran, how long it took, and how many rows it returned or changed.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use contract::{ExceededLimit, RecordedStatement, RecordedStatements};
use pgwire::{Completed, NormalizedStatement, QueryRuns, RepeatedPart, StatementKind};

use crate::budget::Budget;

/// Maximum number of distinct statements that a record counts separately. They take up to 500 kB.
const MAX_STATEMENTS: usize = 500;
/// Maximum number of original texts (as clients sent them) in the record's cache.
const MAX_CACHED_TEXTS: usize = 500;
/// Placeholder for a statement whose text is unknown or empty.
const NO_TEXT: &str = "(no text)";
/// Maximum number of statements in a message, and maximum length of each statement in characters.
const MAX_SHOWN_STATEMENTS: usize = 10;
const MAX_SHOWN_LENGTH: usize = 100;

/// The statements of a test, and the limits that the test exceeded.
#[derive(Debug, Clone, PartialEq)]
pub struct TestMeasurement {
    /// Statements of the test.
    pub statements: RecordedStatements,
    /// The exceeded limits. Empty if the test is within its budget.
    pub exceeded: Vec<ExceededLimit>,
}

impl TestMeasurement {
    /// Returns the report for a test that exceeded its budget (one line with the limits, then the most frequent
    /// statements), or `None` if the test is within its budget.
    #[must_use]
    pub fn message(&self) -> Option<String> {
        let limits: Vec<_> = self.exceeded.iter().map(ToString::to_string).collect();
        let mut lines = Some(limits.join("; ")).filter(|limits| !limits.is_empty())?;
        let shown = &self.statements.statements[..self.statements.statements.len().min(MAX_SHOWN_STATEMENTS)];
        for RecordedStatement { statement, count, n_plus_one, .. } in shown {
            let mark = if *n_plus_one { " (N+1)" } else { "" };
            lines += &format!("\n{count:>7} × {}{mark}", shorten(statement));
        }
        let others = self.statements.count - shown.iter().map(|statement| statement.count).sum::<u64>();
        if others > 0 {
            lines += &format!("\n{others:>7} others");
        }
        Some(lines)
    }
}

/// Shortens a statement to one line.
fn shorten(statement: &str) -> Cow<'_, str> {
    match statement.char_indices().nth(MAX_SHOWN_LENGTH) {
        Some((end, _)) => format!("{}…", &statement[..end]).into(),
        None => statement.into(),
    }
}

/// Record of a running test.
#[derive(Debug, Default)]
pub(crate) struct StatementRecord {
    incomplete: bool,
    count: u64,
    seconds: f64,
    rows: u64,
    lines: Vec<Line>,
    /// Maps each original text to its index in `lines`, so that the text need not be normalized again. `places`
    /// contains the same indexes by normalized statement.
    known: HashMap<Arc<str>, Option<usize>>,
    places: HashMap<String, usize>,
}

#[derive(Debug)]
struct Line {
    statement: RecordedStatement,
    kind: StatementKind,
    runs: QueryRuns,
}

impl StatementRecord {
    /// Adds a completed statement that took `seconds`.
    pub(crate) fn add(&mut self, done: &Completed, seconds: f64) {
        let runs = u64::from(done.ran);
        self.count += runs;
        self.seconds += seconds;
        self.rows += done.rows;
        let Some(place) = self.line_index(&done.statement) else { return self.mark_incomplete() };
        let Line { statement, kind, runs: query } = &mut self.lines[place];
        statement.count += runs;
        statement.seconds += seconds;
        statement.rows += done.rows;
        if done.ran && *kind == StatementKind::Select {
            query.add(done.values, &done.statement);
        }
    }

    /// Marks the record as incomplete.
    pub(crate) fn mark_incomplete(&mut self) {
        self.incomplete = true;
    }

    /// Returns the index of the line for this statement text, or `None` if the record is full.
    fn line_index(&mut self, text: &Arc<str>) -> Option<usize> {
        if let Some(place) = self.known.get(text) {
            return *place;
        }
        let NormalizedStatement { kind, text: statement, .. } = NormalizedStatement::read(text);
        let statement = if statement.is_empty() { NO_TEXT.to_owned() } else { statement };
        let place = match self.places.get(&statement) {
            Some(place) => Some(*place),
            None if self.lines.len() >= MAX_STATEMENTS => None,
            None => {
                self.places.insert(statement.clone(), self.lines.len());
                let statement =
                    RecordedStatement { statement, count: 0, seconds: 0.0, rows: 0, n_plus_one: false };
                self.lines.push(Line { statement, kind, runs: QueryRuns::default() });
                Some(self.lines.len() - 1)
            }
        };
        if self.known.len() >= MAX_CACHED_TEXTS {
            self.known.clear();
        }
        self.known.insert(Arc::clone(text), place);
        place
    }

    /// Returns all statements recorded so far.
    pub(crate) fn statements(&self) -> RecordedStatements {
        let ran = self.lines.iter().filter(|line| line.statement.count > 0);
        let mut statements: Vec<_> = ran
            .map(|line| RecordedStatement { n_plus_one: line.is_n_plus_one(), ..line.statement.clone() })
            .collect();
        statements.sort_by_key(|statement| Reverse(statement.count));
        let Self { incomplete, count, seconds, rows, .. } = *self;
        RecordedStatements { complete: !incomplete, count, seconds, rows, statements }
    }

    /// Returns the limits of `budget` that the test has exceeded.
    pub(crate) fn exceeded(&self, budget: &Budget) -> Vec<ExceededLimit> {
        let statements = budget
            .statements
            .filter(|allowed| self.count > *allowed)
            .map(|allowed| ExceededLimit::Statements { allowed, measured: self.count });
        let repeated = self.lines.iter().filter(|line| line.is_n_plus_one());
        let worst = repeated.max_by_key(|line| line.runs.count());
        let n_plus_one = budget.n_plus_one.zip(worst).and_then(|(allowed, line)| {
            let (measured, statement) = (line.runs.count(), line.statement.statement.clone());
            (measured > allowed).then_some(ExceededLimit::NPlusOne { allowed, measured, statement })
        });
        let time = budget
            .time
            .map(|time| time.as_secs_f64())
            .filter(|allowed| self.seconds > *allowed)
            .map(|allowed| ExceededLimit::Time { allowed, measured: self.seconds });
        statements.into_iter().chain(n_plus_one).chain(time).collect()
    }
}

impl Line {
    fn is_n_plus_one(&self) -> bool {
        self.runs.repeated() == Some(RepeatedPart::Query)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn add_statement(record: &mut StatementRecord, sql: &str, values: Option<u64>, ran: bool) {
        let (statement, begun) = (sql.into(), Instant::now());
        let done = Completed { statement, begun, ran, values, sent: None, rows: 2, error: None, rests: None };
        record.add(&done, 1e-3);
    }

    fn budget(statements: u64, n_plus_one: u64, millis: u64) -> Budget {
        Budget {
            statements: Some(statements),
            n_plus_one: Some(n_plus_one),
            time: Some(Duration::from_millis(millis)),
        }
    }

    #[test]
    fn record_sorts_by_frequency_and_times_preparation() {
        let mut record = StatementRecord::default();
        add_statement(&mut record, "BEGIN", None, true);
        add_statement(&mut record, "SELECT $1", None, false);
        for number in 0..6 {
            add_statement(&mut record, &format!("SELECT  {number}"), None, true);
        }
        add_statement(&mut record, "SET a = 1", None, false);
        add_statement(&mut record, "", None, true);
        let seen = record.statements();
        let lines: Vec<_> = seen
            .statements
            .iter()
            .map(|line| (line.statement.as_str(), line.count, line.rows, line.n_plus_one))
            .collect();
        assert_eq!(lines, [("SELECT ?", 6, 14, true), ("BEGIN", 1, 2, false), (NO_TEXT, 1, 2, false)]);
        assert_eq!((seen.complete, seen.count, seen.rows), (true, 8, 20));
        assert!((seen.seconds - 10e-3).abs() < 1e-9 && (seen.statements[0].seconds - 7e-3).abs() < 1e-9);
    }

    #[test]
    fn budget_limits_allow_equality_but_not_excess() {
        let mut record = StatementRecord::default();
        for value in 0..6 {
            add_statement(&mut record, "SELECT $1", Some(value), true);
            add_statement(&mut record, "INSERT INTO t VALUES ($1)", Some(value), true);
        }
        assert_eq!(record.exceeded(&budget(12, 6, 13)), []);
        let exceeded = record.exceeded(&budget(11, 5, 11));
        let [
            ExceededLimit::Statements { allowed: 11, measured: 12 },
            ExceededLimit::NPlusOne { allowed: 5, measured: 6, statement },
            ExceededLimit::Time { .. },
        ] = &exceeded[..]
        else {
            panic!("{exceeded:?}")
        };
        assert_eq!(statement, "SELECT ?");
        assert_eq!(record.exceeded(&Budget::default()), []);
        assert_eq!(StatementRecord::default().exceeded(&budget(0, 0, 0)), []);
    }

    #[test]
    fn budget_message_lists_limits_and_most_frequent_statements() {
        let mut record = StatementRecord::default();
        for number in 0..12 {
            add_statement(&mut record, &format!("SELECT * FROM t{number}"), None, true);
        }
        (0..9).for_each(|value| add_statement(&mut record, "SELECT $1", Some(value), true));
        (0..2).for_each(|_| add_statement(&mut record, &format!("SELECT {}", "ä".repeat(200)), None, true));
        let message = |budget: &Budget| {
            let (statements, exceeded) = (record.statements(), record.exceeded(budget));
            TestMeasurement { statements, exceeded }.message()
        };
        let text = message(&budget(5, 5, 1)).unwrap();
        let lines: Vec<_> = text.lines().collect();
        let limits = "23 statements, 5 allowed; one query ran 9 times with different values, 5 allowed; 23.0 ms in the database, 1.0 ms allowed";
        assert_eq!((lines.len(), lines[0], lines[1]), (12, limits, "      9 × SELECT ? (N+1)"));
        assert_eq!(lines[2], format!("      2 × SELECT {}…", "ä".repeat(93)));
        assert_eq!((lines[3], lines[11]), ("      1 × SELECT * FROM t0", "      4 others"));
        assert_eq!(message(&Budget::default()), None);
    }

    #[test]
    fn statements_beyond_record_limit_are_counted_as_incomplete() {
        let mut record = StatementRecord::default();
        for number in 0..2 * MAX_STATEMENTS {
            add_statement(&mut record, &format!("SELECT * FROM t{number}"), None, true);
        }
        let seen = record.statements();
        assert_eq!((seen.complete, seen.count, seen.statements.len()), (false, 1000, MAX_STATEMENTS));
        add_statement(&mut record, &format!("SELECT '{}'", "x".repeat(100_000)), None, true);
        assert_eq!(record.statements().count, 1001);
    }
}
