//! Counts the statements that clients run, and represents the budget of a test.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use contract::{Measurement, RecordedStatement, RecordedStatements};

use crate::Database;
use crate::error::Error;

/// Budget of a test, as the HTTP API expects it. None means no limit.
#[derive(Debug, Default, Clone)]
pub(crate) struct Limits {
    pub(crate) statements: Option<u64>,
    pub(crate) n_plus_one: Option<u64>,
    pub(crate) time: Option<String>,
}

impl Limits {
    pub(crate) fn is_empty(&self) -> bool {
        self.query().is_empty()
    }

    /// Returns `NAME=VALUE` for each limit.
    pub(crate) fn query(&self) -> Vec<String> {
        let Self { statements, n_plus_one, time } = self;
        let numbers = [("statements", statements), ("n_plus_one", n_plus_one)];
        let numbers = numbers.into_iter().filter_map(|(name, limit)| Some(format!("{name}={}", (*limit)?)));
        numbers.chain(time.iter().map(|time| format!("time={time}"))).collect()
    }
}

/// Returns `time` as text, rounded up to whole milliseconds: `20ms`.
pub(crate) fn milliseconds(time: Duration) -> String {
    format!("{}ms", time.as_micros().div_ceil(1000))
}

/// Counts the statements of a database, from [`Database::count_statements`] until [`StatementCounter::finish`].
#[derive(Debug)]
#[must_use = "finish() returns the statements"]
pub struct StatementCounter<'a> {
    database: &'a Database,
    before: RecordedStatements,
    resets: usize,
}

impl<'a> StatementCounter<'a> {
    pub(crate) fn start(database: &'a Database) -> Result<Self, Error> {
        Ok(Self {
            database,
            resets: database.resets(),
            before: database.measure(&Limits::default())?.statements,
        })
    }

    /// Returns the statements that ran and ended since [`Database::count_statements`].
    ///
    /// # Errors
    /// Fails if the client can't read the counts from the server.
    pub fn finish(self) -> Result<Statements, Error> {
        let Measurement { statements: after, .. } = self.database.measure(&Limits::default())?;
        let reset = self.database.resets() != self.resets;
        Ok(Statements::between(&self.before, &after, reset))
    }
}

/// Statements that ran while a [`StatementCounter`] counted.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Statements {
    /// Number of statements, including BEGIN and COMMIT.
    pub count: u64,
    /// Distinct statements, sorted by count in descending order.
    pub most_frequent: Vec<Statement>,
    /// Total time in the database.
    pub time: Duration,
    /// Whether the counts and the list are complete. After a reset, the statements before the reset are missing.
    /// pgfresh also lists only a limited number of distinct statements.
    pub complete: bool,
}

/// Statement with the totals of its runs.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Statement {
    /// Text in one line, with `?` in place of values.
    pub text: String,
    /// Number of runs.
    pub count: u64,
    /// Total time in the database.
    pub time: Duration,
    /// Number of rows that the runs returned or changed.
    pub rows: u64,
}

impl Statements {
    fn between(before: &RecordedStatements, after: &RecordedStatements, reset: bool) -> Self {
        let mut earlier: HashMap<&str, &RecordedStatement> =
            before.statements.iter().map(|line| (line.statement.as_str(), line)).collect();
        let later: HashMap<&str, u64> =
            after.statements.iter().map(|line| (line.statement.as_str(), line.count)).collect();
        // Lower counts indicate a reset by another client.
        let reset = reset
            || earlier.iter().any(|(text, line)| later.get(text).is_none_or(|count| *count < line.count));
        if reset {
            earlier.clear();
        }
        let ran = after.statements.iter().filter_map(|line| {
            let was = earlier.get(line.statement.as_str());
            let (count, seconds, rows) = was.map_or((0, 0.0, 0), |was| (was.count, was.seconds, was.rows));
            (line.count > count).then(|| Statement {
                text: line.statement.clone(),
                count: line.count - count,
                time: duration(line.seconds - seconds),
                rows: line.rows.saturating_sub(rows),
            })
        });
        let mut most_frequent: Vec<Statement> = ran.collect();
        most_frequent.sort_by_key(|statement| Reverse(statement.count));
        let (count, seconds) = if reset { (0, 0.0) } else { (before.count, before.seconds) };
        Self {
            count: after.count.saturating_sub(count),
            most_frequent,
            time: duration(after.seconds - seconds),
            complete: after.complete && !reset,
        }
    }
}

/// Converts `seconds` to a duration. Negative numbers become zero, because the difference between two rounded numbers
/// can be slightly negative.
fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)
}

impl fmt::Display for Statements {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} statements", self.count)?;
        for (n, Statement { text, count, .. }) in self.most_frequent.iter().enumerate() {
            write!(formatter, "{} {count}x {text}", if n == 0 { ":" } else { "," })?;
        }
        Ok(())
    }
}
