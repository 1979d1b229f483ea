//! What `pg_stat_statements` has counted meanwhile, on a server that has it.
//!
//! Its counts are exact, and those of the server itself: neither the client's way to it nor its wait for rows is in them.

use std::collections::HashMap;

use postgres::{Client, Error, Row};

use crate::error::explain;
use pgwire::NormalizedStatement;

/// The version of the extension that has times of execution by this name; it comes with PostgreSQL 13.
const OLDEST: (u32, u32) = (1, 8);
/// The version that tells statements of clients from those within functions.
const TELLS_LEVELS: (u32, u32) = (1, 9);

/// A statement as the server has counted it.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Without its values.
    pub statement: NormalizedStatement,
    /// Where it was run.
    pub database: String,
    /// How many times.
    pub runs: f64,
    /// Seconds of execution in all.
    pub seconds: f64,
    /// Rows that it returned or changed in all.
    pub rows: f64,
}

/// What came of asking.
#[derive(Debug, Clone, PartialEq)]
pub enum Counted {
    /// What took longest comes first.
    Lines(Vec<Line>),
    /// Why there is nothing.
    Nothing(String),
}

/// Counts at one moment.
#[derive(Debug)]
pub(crate) struct Counts {
    /// The function that gives them, and whether it tells levels.
    function: String,
    tells_levels: bool,
    before: HashMap<Key, [f64; 3]>,
}

/// Database, user, statement, and whether a client has sent it.
type Key = (i64, i64, i64, bool);

impl Counts {
    /// As they stand now; or why there are none.
    pub(crate) fn read(client: &mut Client) -> Result<Self, String> {
        let about = "SELECT /* pgfresh */ extversion, quote_ident(nspname) FROM pg_namespace n \
                     JOIN pg_extension e ON extnamespace = n.oid WHERE extname = 'pg_stat_statements'";
        let found = client.query_opt(about, &[]).map_err(|error| explain(&error))?;
        let Some(found) = found else {
            return Err("the database has no extension pg_stat_statements".to_owned());
        };
        let (version, schema): (String, String) = (found.get(0), found.get(1));
        let parsed = version.split_once('.').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let parsed = parsed.filter(|version| *version >= OLDEST).ok_or_else(|| {
            format!("pg_stat_statements {version} is too old: ALTER EXTENSION pg_stat_statements UPDATE")
        })?;
        let function = format!("{schema}.pg_stat_statements");
        let mut counts = Self { function, tells_levels: parsed >= TELLS_LEVELS, before: HashMap::new() };
        let rows = counts.ask(client, false).map_err(|error| explain(&error))?;
        counts.before = rows.iter().map(|row| (key(row), numbers(row))).collect();
        Ok(counts)
    }

    /// What was added since then.
    pub(crate) fn since(&self, client: &mut Client) -> Counted {
        let rows = match self.ask(client, true) {
            Ok(rows) => rows,
            Err(error) => return Counted::Nothing(explain(&error)),
        };
        let mut sums: HashMap<(NormalizedStatement, String), [f64; 3]> = HashMap::new();
        for row in &rows {
            let (now, text): (_, &str) = (numbers(row), row.get(8));
            // It was forgotten or reset meanwhile, and began again, if it has less.
            let before = self.before.get(&key(row)).filter(|before| before[0] <= now[0]);
            let added = before.map_or(now, |before| [0, 1, 2].map(|at| now[at] - before[at]));
            if added[0] > 0.0 && !text.contains("/* pgfresh */") {
                let sum = sums.entry((NormalizedStatement::read(text), row.get(7))).or_default();
                *sum = [0, 1, 2].map(|at| sum[at] + added[at]);
            }
        }
        let lines = sums.into_iter().map(|((statement, database), [runs, seconds, rows])| Line {
            statement,
            database,
            runs,
            seconds,
            rows,
        });
        let mut lines: Vec<Line> = lines.collect();
        lines.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
        Counted::Lines(lines)
    }

    fn ask(&self, client: &mut Client, texts: bool) -> Result<Vec<Row>, Error> {
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

/// Runs, seconds, rows.
fn numbers(row: &Row) -> [f64; 3] {
    [row.get(4), row.get(5), row.get(6)]
}
