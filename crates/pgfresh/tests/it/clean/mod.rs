//! Every lease is clean: what a session has done, in whatever way it ended, is not there for the next holder of the
//! database, and a new session is truly new.
//!
//! Black box: clients of `pgfresh serve` and `pgfresh run` over the wire and HTTP, nothing of what is inside.

mod connections;
mod data;
mod definitions;
mod ends;
mod objects;
mod rollback;
mod row;
mod shared;

use std::fmt::Display;

use crate::common::connection::{Connection, SqlError};
use crate::common::gateway::Gateway;

/// Tables that a clean database has empty or filled with known values.
const TEMPLATE: &str = include_str!("template.sql");

/// A lease that ends with its last session.
const BRIEF: &str = "-c pgfresh.linger=0";
/// A lease that outlives its sessions.
const LASTING: &str = "-c pgfresh.linger=60s";

/// All rows and parameters that the faults of this file have changed, as one text.
const STATE: &str = "SELECT pg_catalog.concat_ws(' ', (SELECT count(*) FROM t), \
    (SELECT string_agg(id || '=' || v, ',' ORDER BY id) FROM seed), \
    (SELECT string_agg(extract(epoch FROM at) || '/' || day || '/' || extract(epoch FROM span) || '/' \
        || encode(body, 'hex') || '/' || encode(float8send(ratio), 'hex'), ',') FROM moment), \
    (SELECT md5(string_agg(body, '')) FROM packed), \
    (SELECT xmlserialize(DOCUMENT body AS text) FROM document), \
    (SELECT string_agg(amount || '/' || tax, ',') FROM priced), \
    (SELECT count(*) FROM information_schema.extra), \
    (SELECT last_value || '/' || is_called FROM ticket), (SELECT last_value || '/' || is_called FROM used))";

/// Touches each table and the sequence.
const CHANGES: &str = "INSERT INTO t VALUES ('dirty'); UPDATE seed SET v = '1' WHERE id = 3; \
    UPDATE moment SET id = 2; UPDATE packed SET id = 2; UPDATE document SET id = 2; \
    UPDATE priced SET amount = 1; INSERT INTO information_schema.extra VALUES (1); SELECT nextval('ticket'); \
    SELECT nextval('used')";

impl Gateway {
    /// One with the template of this file.
    fn clean(major: u32, options: &[&str]) -> Self {
        Self::start(major, TEMPLATE, options)
    }

    /// The state of a database that no session has changed.
    fn clean_state(&self) -> String {
        self.connect_in_time("untouched", BRIEF).value(STATE).unwrap()
    }
}

/// What was found where a clean database, or a session, was promised.
struct Findings {
    expected: String,
    rounds: u32,
    wrong: Vec<String>,
}

impl Findings {
    fn new(expected: impl Into<String>) -> Self {
        Self { expected: expected.into(), rounds: 0, wrong: Vec::new() }
    }

    /// Notes what a new session says to `sql`, or why there is none; returns the session.
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

    /// Fails if anything else than what was expected has been found.
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
