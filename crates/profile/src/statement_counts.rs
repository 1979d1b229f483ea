//! Reads the counts of `pg_stat_statements` at the start and end of a recording, if the server has this extension.
//!
//! The counts are exact but only cover the server's own work. They don't cover the transfer of rows to the client or
//! the waits for the client during that transfer.

use std::collections::HashMap;

use postgres::{Client, Error, Row};

use crate::error::explain;
use pgwire::NormalizedStatement;

/// Minimum version of the extension. It ships with PostgreSQL 13 and introduced the current column names for execution
/// times.
const MIN_EXTENSION_VERSION: (u32, u32) = (1, 8);
/// First version of the extension that distinguishes clients' statements from those within functions.
const FIRST_VERSION_WITH_LEVELS: (u32, u32) = (1, 9);

/// A statement with the server's counts for it.
#[derive(Debug, Clone, PartialEq)]
pub struct CountedStatement {
    /// Text of the statement, without values.
    pub statement: NormalizedStatement,
    /// Database in which the statement ran.
    pub database: String,
    /// Number of runs.
    pub runs: f64,
    /// Total execution time in seconds.
    pub seconds: f64,
    /// Total number of rows returned or changed by the statement.
    pub rows: f64,
}

/// Outcome of reading the server's counts.
#[derive(Debug, Clone, PartialEq)]
pub enum Counted {
    /// Statements with their counts, longest total time first.
    Statements(Vec<CountedStatement>),
    /// The server doesn't have counts, for this reason.
    Unavailable(String),
}

/// Reasons why the server doesn't have counts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CountsError {
    #[error("the database has no extension pg_stat_statements")]
    NoExtension,
    #[error("pg_stat_statements {version} is too old: ALTER EXTENSION pg_stat_statements UPDATE")]
    OldExtension { version: String },
    #[error("{}", explain(.0))]
    Query(#[from] Error),
}

/// The server's counts at one moment.
#[derive(Debug)]
pub(crate) struct Counts {
    /// Name of the extension's function, with its schema.
    function: String,
    tells_levels: bool,
    before: HashMap<Key, [f64; 3]>,
}

/// Identity of a count: the database, the user, the query ID, and whether a client sent the statement.
type Key = (i64, i64, i64, bool);

impl Counts {
    /// Reads the server's current counts.
    pub(crate) fn read(client: &mut Client) -> Result<Self, CountsError> {
        let about = "SELECT /* pgfresh */ extversion, quote_ident(nspname) FROM pg_namespace n \
                     JOIN pg_extension e ON extnamespace = n.oid WHERE extname = 'pg_stat_statements'";
        let found = client.query_opt(about, &[])?.ok_or(CountsError::NoExtension)?;
        let (version, schema): (String, String) = (found.get(0), found.get(1));
        let parsed = version.split_once('.').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let parsed = parsed.filter(|version| *version >= MIN_EXTENSION_VERSION);
        let parsed = parsed.ok_or(CountsError::OldExtension { version })?;
        let function = format!("{schema}.pg_stat_statements");
        let mut counts =
            Self { function, tells_levels: parsed >= FIRST_VERSION_WITH_LEVELS, before: HashMap::new() };
        let rows = counts.query(client, false)?;
        counts.before = rows.iter().map(|row| (key(row), numbers(row))).collect();
        Ok(counts)
    }

    /// Returns how much the counts increased since [`Self::read`].
    pub(crate) fn since(&self, client: &mut Client) -> Counted {
        let rows = match self.query(client, true) {
            Ok(rows) => rows,
            Err(error) => return Counted::Unavailable(explain(&error)),
        };
        let mut sums: HashMap<(NormalizedStatement, String), [f64; 3]> = HashMap::new();
        for row in &rows {
            let (now, text): (_, &str) = (numbers(row), row.get(8));
            // If a count has decreased, the server discarded the statement's entry and started a new entry.
            let before = self.before.get(&key(row)).filter(|before| before[0] <= now[0]);
            let added = before.map_or(now, |before| [0, 1, 2].map(|at| now[at] - before[at]));
            if added[0] > 0.0 && !text.contains("/* pgfresh */") {
                let sum = sums.entry((NormalizedStatement::read(text), row.get(7))).or_default();
                *sum = [0, 1, 2].map(|at| sum[at] + added[at]);
            }
        }
        let lines = sums.into_iter().map(|((statement, database), [runs, seconds, rows])| CountedStatement {
            statement,
            database,
            runs,
            seconds,
            rows,
        });
        let mut lines: Vec<CountedStatement> = lines.collect();
        lines.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
        Counted::Statements(lines)
    }

    fn query(&self, client: &mut Client, texts: bool) -> Result<Vec<Row>, Error> {
        let Self { function, tells_levels, .. } = self;
        let (level, text) =
            (if *tells_levels { "toplevel" } else { "true" }, if texts { "left(query, 1000)" } else { "''" });
        let sql = format!(
            "SELECT /* pgfresh */ dbid::int8, userid::int8, queryid, {level}, calls::float8, total_exec_time / 1000, \
             rows::float8, coalesce(datname, ''), coalesce({text}, '') FROM {function}({texts}) s \
             LEFT JOIN pg_database d ON d.oid = dbid WHERE queryid IS NOT NULL"
        );
        client.query(&sql, &[])
    }
}

fn key(row: &Row) -> Key {
    (row.get(0), row.get(1), row.get(2), row.get(3))
}

/// Returns the number of runs, the seconds, and the number of rows.
fn numbers(row: &Row) -> [f64; 3] {
    [row.get(4), row.get(5), row.get(6)]
}
