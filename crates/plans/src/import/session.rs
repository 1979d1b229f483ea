//! Reads from the production server in a single transaction with limited duration.

use std::collections::BTreeMap;
use std::str::FromStr;

use postgres::{Client, SimpleQueryMessage, SimpleQueryRow};

use super::error::ImportError;
use super::server::StatisticsServer;
use crate::settings::{SETTINGS, SWITCH};
use crate::statistics::PAGE_SIZE;

/// Oldest supported server version.
const OLDEST_VERSION: u32 = 130_000;
/// Number of rows to fetch from a cursor at a time. The number is small because a row of column statistics can take a
/// megabyte.
const ROWS: u32 = 200;

/// Begins the transaction. Fixes the settings that affect how values are printed, because the role's settings may
/// differ.
const BEGIN: &str = "
    BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
    SET LOCAL statement_timeout = '60s';
    SET LOCAL lock_timeout = '1s';
    SET LOCAL idle_in_transaction_session_timeout = '60s';
    SET LOCAL search_path = pg_catalog;
    SET LOCAL datestyle = 'ISO, YMD';
    SET LOCAL intervalstyle = 'postgres';
    SET LOCAL timezone = 'UTC';
    SET LOCAL extra_float_digits = 1;
    SET LOCAL bytea_output = 'hex';
    SET LOCAL lc_monetary = 'C';
    SET LOCAL quote_all_identifiers = off;
    SELECT current_setting('server_version_num') AS version, current_setting('block_size') AS page,
        extract(epoch FROM now())::int8 AS taken";
/// Limits the import's own queries to a single CPU. This changes planner settings, so it runs after the settings have
/// been read.
const BOUND: &str = "SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL jit = off";
/// Properties of the server that the transaction reads.
pub(super) struct ServerFacts {
    /// Server version as PostgreSQL numbers it.
    pub(super) version: u32,
    /// When the transaction began, in seconds since 1970.
    pub(super) taken: u64,
}

pub(super) struct Session {
    client: Client,
    /// Called after each response from the server.
    answered: Box<dyn Fn()>,
}

impl Session {
    pub(super) fn open(server: &StatisticsServer, answered: Box<dyn Fn()>) -> Result<Self, ImportError> {
        let client = server.connect()?;
        answered();
        Ok(Self { client, answered })
    }

    /// Begins the transaction and checks the server.
    pub(super) fn begin(&mut self) -> Result<ServerFacts, ImportError> {
        let part = "the version of the server";
        let rows = self.rows(part, BEGIN)?;
        let row = rows.first().ok_or(ImportError::Answer { part, column: "version" })?;
        let version = row.number("version")?;
        let page = row.number("page")?;
        if version < OLDEST_VERSION {
            return Err(ImportError::OldServer(version / 10_000));
        }
        if page != PAGE_SIZE {
            return Err(ImportError::PageSize(page));
        }
        Ok(ServerFacts { version, taken: row.number("taken")? })
    }

    pub(super) fn settings(&mut self) -> Result<BTreeMap<String, String>, ImportError> {
        let names = SETTINGS.map(|name| format!("'{name}'")).join(", ");
        let query = format!(
            "SELECT name, current_setting(name) AS value FROM pg_settings
            WHERE starts_with(name, '{SWITCH}') OR name IN ({names})"
        );
        let rows = self.rows("the planner's settings", &query)?;
        rows.iter().map(|row| Ok((row.text("name")?.to_owned(), row.text("value")?.to_owned()))).collect()
    }

    pub(super) fn bound(&mut self) -> Result<(), ImportError> {
        self.rows("the planner's settings", BOUND).map(drop)
    }

    pub(super) fn end(mut self) -> Result<(), ImportError> {
        self.rows("the end of the transaction", "COMMIT").map(drop)
    }

    /// Returns the rows of a query.
    pub(super) fn rows(&mut self, part: &'static str, query: &str) -> Result<Vec<Row>, ImportError> {
        let messages = self.client.simple_query(query).map_err(|error| ImportError::query(part, &error))?;
        (self.answered)();
        Ok(messages
            .into_iter()
            .filter_map(|message| match message {
                SimpleQueryMessage::Row(row) => Some(Row { part, row }),
                _ => None,
            })
            .collect())
    }

    /// Passes each row of a query to `each`. A cursor limits the memory use on both sides.
    pub(super) fn each(
        &mut self,
        part: &'static str,
        query: &str,
        mut each: impl FnMut(&Row) -> Result<(), ImportError>,
    ) -> Result<(), ImportError> {
        self.rows(part, &format!("DECLARE pgfresh_rows NO SCROLL CURSOR FOR {query}"))?;
        loop {
            let rows = self.rows(part, &format!("FETCH {ROWS} FROM pgfresh_rows"))?;
            if rows.is_empty() {
                break;
            }
            rows.iter().try_for_each(&mut each)?;
        }
        self.rows(part, "CLOSE pgfresh_rows").map(drop)
    }

    /// Returns the rows of a query that may wait for a lock. Returns `None` if the server rejects the query because of
    /// single relations. In both cases, the transaction remains usable.
    pub(super) fn try_rows(
        &mut self,
        part: &'static str,
        query: &str,
    ) -> Result<Option<Vec<Row>>, ImportError> {
        self.rows(part, "SAVEPOINT pgfresh_try")?;
        let answer = match self.client.simple_query(query) {
            Ok(messages) => messages,
            Err(error) if is_about_a_relation(&error) => {
                self.rows(part, "ROLLBACK TO SAVEPOINT pgfresh_try")?;
                return Ok(None);
            }
            Err(error) => return Err(ImportError::query(part, &error)),
        };
        self.rows(part, "RELEASE SAVEPOINT pgfresh_try")?;
        let row = |message| match message {
            SimpleQueryMessage::Row(row) => Some(Row { part, row }),
            _ => None,
        };
        Ok(Some(answer.into_iter().filter_map(row).collect()))
    }
}

/// Returns true if other relations may still be readable after this error. Causes are a lock that another session
/// holds, a relation that was dropped, and a damaged file.
fn is_about_a_relation(error: &postgres::Error) -> bool {
    error.code().is_some_and(|code| !["08", "57"].contains(&&code.code()[..2]))
}

/// A row of a response.
pub(super) struct Row {
    part: &'static str,
    row: SimpleQueryRow,
}

impl Row {
    /// Returns a field. `None` for NULL, and for text that isn't UTF-8, which an `SQL_ASCII` database can contain.
    pub(super) fn optional(&self, column: &'static str) -> Option<&str> {
        self.row.try_get(column).ok().flatten()
    }

    pub(super) fn text(&self, column: &'static str) -> Result<&str, ImportError> {
        self.optional(column).ok_or(self.invalid(column))
    }

    pub(super) fn number<N: FromStr>(&self, column: &'static str) -> Result<N, ImportError> {
        self.text(column)?.parse().map_err(|_| self.invalid(column))
    }

    pub(super) fn is_true(&self, column: &'static str) -> bool {
        self.optional(column) == Some("t")
    }

    /// Returns a text array. Empty for NULL.
    pub(super) fn list(&self, column: &'static str) -> Result<Vec<String>, ImportError> {
        let Some(text) = self.optional(column) else { return Ok(Vec::new()) };
        super::array::values(text, ',').ok_or(self.invalid(column))
    }

    pub(super) fn invalid(&self, column: &'static str) -> ImportError {
        ImportError::Answer { part: self.part, column }
    }
}
