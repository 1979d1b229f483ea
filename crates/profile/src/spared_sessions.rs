//! Counts the sessions that a connection pool would have spared the suite.
//!
//! A connection serves one user in one database, so a pool spares a session only if an earlier session of this user in
//! this database has ended. The first session in a fresh database is never spared.

use std::collections::HashMap;
use std::sync::Arc;

/// Sessions that a pool would have spared, if it keeps as many connections open as the suite has used at once.
#[derive(Debug, Clone, Default)]
pub(crate) struct SparedSessions {
    /// Number of spared sessions.
    pub(crate) count: u64,
    /// How long clients waited for these sessions, in seconds.
    pub(crate) waited: f64,
    /// User and database of each open session, by the session's number.
    open: HashMap<u64, Connection>,
    /// Number of ended sessions whose connections a pool would still hold, without those that a later session reuses.
    idle: HashMap<Connection, u64>,
}

/// A user and a database. A pool reuses connections only if both are the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Connection {
    user: Arc<str>,
    database: Arc<str>,
}

impl SparedSessions {
    /// Records the start of a session. Returns true if a pool would have spared it.
    pub(crate) fn session_started(
        &mut self,
        session: u64,
        waited: f64,
        user: &Arc<str>,
        database: &Arc<str>,
    ) -> bool {
        let connection = Connection { user: Arc::clone(user), database: Arc::clone(database) };
        let idle = self.idle.get_mut(&connection).filter(|idle| **idle > 0);
        let is_spared = idle.is_some();
        if let Some(idle) = idle {
            *idle -= 1;
            self.count += 1;
            self.waited += waited;
        }
        self.open.insert(session, connection);
        is_spared
    }

    /// Records the end of a session.
    pub(crate) fn session_ended(&mut self, session: u64) {
        if let Some(connection) = self.open.remove(&session) {
            *self.idle.entry(connection).or_default() += 1;
        }
    }

    /// Records a reset or the release of `database`, which ends its connections.
    pub(crate) fn database_reset(&mut self, database: &str) {
        self.open.retain(|_, connection| &*connection.database != database);
        self.idle.retain(|connection, _| &*connection.database != database);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replays `USER DATABASE` (a short session), `+USER DATABASE` (a session that stays open) and `end DATABASE`.
    fn spared(script: &[&str]) -> u64 {
        let mut sessions = SparedSessions::default();
        for (number, line) in (0..).zip(script) {
            let (user, database) = line.split_once(' ').unwrap();
            let (user, stays) = user.strip_prefix('+').map_or((user, false), |user| (user, true));
            if user == "end" {
                sessions.database_reset(database);
                continue;
            }
            sessions.session_started(number, 0.5, &user.into(), &database.into());
            if !stays {
                sessions.session_ended(number);
            }
        }
        assert!((sessions.waited - 0.5 * report::as_f64(sessions.count)).abs() < 1e-9, "{sessions:?}");
        sessions.count
    }

    #[test]
    fn connection_serves_one_user_and_database() {
        assert_eq!(spared(&["a one", "a two", "b one", "a three"]), 0);
        assert_eq!(spared(&["a one", "a one", "a two", "a one", "b one", "b one"]), 3);
    }

    #[test]
    fn open_session_serves_no_other_client() {
        assert_eq!(spared(&["+a one", "+a one", "a one", "a one"]), 1);
    }

    #[test]
    fn released_databases_end_their_connections() {
        assert_eq!(spared(&["a one", "+a one", "end one", "a one", "a one"]), 2);
    }
}
