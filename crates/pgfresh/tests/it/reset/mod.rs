//! Tests that every lease is clean: the next holder of a database doesn't see effects of earlier sessions, however
//! they ended, and a new session equals the first session.
//!
//! The tests are clients of `pgfresh serve` and `pgfresh run`, over PostgreSQL's protocol and HTTP, and don't
//! call pgfresh's functions.

mod builtin_calls;
mod data;
mod definitions;
mod differential;
mod encodings;
mod exchanged;
mod growth;
mod new_sessions;
mod pg_database_row;
mod protected_tables;
mod recycled;
mod row_order;
mod rows_in_memory;
mod session_ends;
mod shared_objects;

use std::fmt::Display;

use crate::common::connection::{Connection, SqlError};
use crate::common::gateway::Gateway;

/// Template whose tables are empty or have known values.
const TEMPLATE: &str = include_str!("template.sql");

/// Options for a lease that ends with its last session.
pub(crate) const BRIEF: &str = "-c pgfresh.linger=0";
/// Options for a lease that outlives its sessions.
const LASTING: &str = "-c pgfresh.linger=60s";

/// Query that returns all rows and parameters that this module's tests change, as one string.
const STATE: &str = "SELECT pg_catalog.concat_ws(' ', (SELECT count(*) FROM t), \
    (SELECT string_agg(id || '=' || v, ',' ORDER BY id) FROM seed), \
    (SELECT string_agg(extract(epoch FROM at) || '/' || day || '/' || extract(epoch FROM span) || '/' \
        || encode(body, 'hex') || '/' || encode(float8send(ratio), 'hex'), ',') FROM moment), \
    (SELECT md5(string_agg(body, '')) FROM packed), \
    (SELECT xmlserialize(DOCUMENT body AS text) FROM document), \
    (SELECT string_agg(amount || '/' || tax, ',') FROM priced), \
    (SELECT count(*) FROM information_schema.extra), \
    (SELECT last_value || '/' || is_called FROM ticket), (SELECT last_value || '/' || is_called FROM used))";

/// Statements that change each table and the sequence.
const CHANGES: &str = "INSERT INTO t VALUES ('dirty'); UPDATE seed SET v = '1' WHERE id = 3; \
    UPDATE moment SET id = 2; UPDATE packed SET id = 2; UPDATE document SET id = 2; \
    UPDATE priced SET amount = 1; INSERT INTO information_schema.extra VALUES (1); SELECT nextval('ticket'); \
    SELECT nextval('used')";

impl Gateway {
    /// Starts a gateway with this module's template.
    pub(crate) fn clean(major: u32, options: &[&str]) -> Self {
        Self::start(major, TEMPLATE, options)
    }

    /// Returns the state of a database that no session has changed.
    fn clean_state(&self) -> String {
        self.connect_in_time("untouched", BRIEF).value(STATE).unwrap()
    }
}

/// Results that differ from those in a clean database or session.
struct Findings {
    expected: String,
    rounds: u32,
    wrong: Vec<String>,
}

impl Findings {
    fn new(expected: impl Into<String>) -> Self {
        Self { expected: expected.into(), rounds: 0, wrong: Vec::new() }
    }

    /// Adds the result of `sql` in a new session, or the error that prevented the session. Returns the session.
    fn note(
        &mut self,
        context: impl Display,
        session: Result<Connection, SqlError>,
        sql: &str,
    ) -> Option<Connection> {
        let mut session = session;
        let found = session.as_mut().map_err(|error| error.clone()).and_then(|session| session.value(sql));
        self.found(context, &found.unwrap_or_else(|error| error.to_string()));
        session.ok()
    }

    fn found(&mut self, context: impl Display, found: &str) {
        self.rounds += 1;
        if found != self.expected {
            self.wrong.push(format!("{context}: {found}"));
        }
    }

    /// Fails if a result differs from the expected result.
    #[track_caller]
    fn assert_none(self) {
        let shown: Vec<_> = self.wrong.iter().take(6).map(String::as_str).collect();
        assert!(
            self.wrong.is_empty(),
            "{} of {} are not as promised, expected {:?}:\n{}",
            self.wrong.len(),
            self.rounds,
            self.expected,
            shown.join("\n")
        );
    }
}
