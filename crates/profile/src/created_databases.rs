//! Counts the databases that a suite creates with SQL, and the sessions that only exist because of these databases.
//!
//! These sessions are the sessions that create and drop the databases, and the first session in each database. A
//! connection pool can't save the suite these sessions, but fresh databases can.

use std::collections::{HashMap, HashSet};

use pgwire::{SqlLexer, StatementKind};

/// Databases that a suite created with SQL, and the sessions that only exist because of these databases.
#[derive(Debug, Clone, Default)]
pub(crate) struct CreatedDatabases {
    /// Number of databases created by the suite.
    pub(crate) count: u64,
    /// Number of sessions that only exist because of these databases.
    pub(crate) sessions: u64,
    /// How long clients waited for these sessions, in seconds.
    pub(crate) waited: f64,
    /// Those of these sessions that a connection pool would have spared: their number, and how long clients waited for
    /// them, in seconds.
    pub(crate) spared: (u64, f64),
    /// Names of databases that haven't had a session yet.
    unused: HashSet<String>,
    /// All other open sessions.
    open_sessions: HashMap<u64, StartedSession>,
}

/// A session that may turn out to exist only because of created databases.
#[derive(Debug, Clone, Copy)]
struct StartedSession {
    /// How long the client waited for the session, in seconds.
    waited: f64,
    /// True if a connection pool would have spared the session.
    is_spared: bool,
}

impl CreatedDatabases {
    /// Records the start of a session. `is_spared` is true if a connection pool would have spared the session.
    pub(crate) fn session_started(&mut self, session: u64, waited: f64, database: &str, is_spared: bool) {
        let started = StartedSession { waited, is_spared };
        if self.unused.remove(database) {
            self.add(started);
        } else {
            self.open_sessions.insert(session, started);
        }
    }

    /// Records a statement completed by a session.
    pub(crate) fn statement_completed(&mut self, session: u64, statement: &str, kind: StatementKind) {
        if kind != StatementKind::Database {
            return;
        }
        if let Some(started) = self.open_sessions.remove(&session) {
            self.add(started);
        }
        if let Some(name) = created_name(statement) {
            self.count += 1;
            self.unused.insert(name);
        }
    }

    /// Records the end of a session.
    pub(crate) fn session_ended(&mut self, session: u64) {
        self.open_sessions.remove(&session);
    }

    fn add(&mut self, StartedSession { waited, is_spared }: StartedSession) {
        self.sessions += 1;
        self.waited += waited;
        if is_spared {
            self.spared.0 += 1;
            self.spared.1 += waited;
        }
    }
}

/// Returns the name of the database created by the statement, or `None` for any other statement.
fn created_name(statement: &str) -> Option<String> {
    let mut lexer = SqlLexer::new(statement.as_bytes(), true);
    if !(lexer.token()?.is_word(b"create") && lexer.token()?.is_word(b"database")) {
        return None;
    }
    lexer.token()?.name()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_that_exist_for_databases_are_counted() {
        let mut made = CreatedDatabases::default();
        let run = |made: &mut CreatedDatabases, session, sql| {
            made.statement_completed(session, sql, StatementKind::Database);
        };
        // The first session creates a database, two sessions use the database, and one session drops it.
        made.session_started(1, 0.1, "postgres", false);
        made.statement_completed(1, "SELECT 1", StatementKind::Select);
        run(&mut made, 1, "CREATE DATABASE Own");
        run(&mut made, 1, "CREATE DATABASE \"Other\"\"s\" TEMPLATE app");
        made.session_ended(1);
        for (session, database) in [(2, "own"), (3, "own"), (4, "Other\"s"), (5, "app")] {
            made.session_started(session, 0.2, database, false);
            made.statement_completed(session, "SELECT 1", StatementKind::Select);
        }
        made.session_started(6, 0.4, "postgres", true);
        run(&mut made, 6, "DROP DATABASE own");
        run(&mut made, 6, "DROP DATABASE \"Other\"\"s\"");
        assert_eq!((made.count, made.sessions), (2, 4));
        assert!((made.waited - 0.9).abs() < 1e-9, "{made:?}");
        assert_eq!(made.spared, (1, 0.4));
    }
}
