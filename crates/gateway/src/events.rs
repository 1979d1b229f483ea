//! Logs the events of all sessions, so that a profiler can follow them.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use sys::lock;

use crate::statement_collection::StatementCollection;

/// Maximum number of entries that wait for the reader. A full log needs 5 MB, plus up to 70 MB if each entry contains a
/// different statement of maximum length.
const MAX_ENTRIES: usize = 1 << 16;

/// Log of all sessions' events, drained periodically by a single reader. Clones share the entries.
///
/// All times are measured by the gateway. A statement's time runs from when the gateway sends it to the server until
/// the gateway sends the response to the client.
#[derive(Debug, Clone, Default)]
pub struct EventLog(Arc<Mutex<State>>);

/// Creates a gateway's event log and its collection of statements on demand, when a reader calls [`Self::follow`] or
/// [`Self::collect`]. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct EventSource(Arc<Listeners>);

#[derive(Debug, Default)]
struct Listeners {
    log: OnceLock<EventLog>,
    collection: OnceLock<Arc<StatementCollection>>,
}

impl EventSource {
    /// Logs that the test using `database` has ended. `name` is the test's name in its test runner.
    pub fn test_ended(&self, database: &str, name: Option<&str>) {
        if let Some(collection) = self.collection() {
            collection.test_ended(database, name);
        }
        if let Some(log) = self.log() {
            let kind = SessionEventKind::TestEnded { name: name.map(Into::into) };
            log.push(SessionEvent {
                session: NO_SESSION,
                database: database.into(),
                at: Instant::now(),
                kind,
            });
        }
    }

    pub(crate) fn log(&self) -> Option<&EventLog> {
        self.0.log.get()
    }

    pub(crate) fn collection(&self) -> Option<&Arc<StatementCollection>> {
        self.0.collection.get()
    }

    /// Returns the log that all new sessions will write to.
    pub(crate) fn follow(&self) -> EventLog {
        self.0.log.get_or_init(EventLog::default).clone()
    }

    /// Returns the collection that all new sessions will add their statements to.
    pub(crate) fn collect(&self) -> Arc<StatementCollection> {
        Arc::clone(self.0.collection.get_or_init(Arc::default))
    }
}

/// Session number of an event that doesn't belong to a session.
const NO_SESSION: u64 = u64::MAX;

#[derive(Debug, Default)]
struct State {
    entries: Vec<SessionEvent>,
    lost: u64,
}

/// An event in a session.
#[derive(Debug, Clone)]
pub struct SessionEvent {
    /// The session's number, unique in this process. `u64::MAX` if the event doesn't belong to a session.
    pub session: u64,
    /// The database's name, as the client spells it.
    pub database: Arc<str>,
    /// Time of the event.
    pub at: Instant,
    /// Kind of event, with its data.
    pub kind: SessionEventKind,
}

/// Kind of a session event.
#[derive(Debug, Clone)]
pub enum SessionEventKind {
    /// The session began.
    Began {
        /// Time from the client's startup message until the session had a backend, including the time to create a
        /// database.
        waited: Duration,
        /// The session's user, with U+FFFD in place of invalid UTF-8.
        user: Arc<str>,
        /// True if the session requested a database reset at its start.
        resets: bool,
        /// Process id of the backend, or 0 if the server doesn't report it.
        backend: i32,
    },
    /// The client sent a request while the server was idle.
    Requested,
    /// The server completed a statement.
    Completed {
        /// First 1023 bytes of the statement. Empty if the gateway never saw the text, because the statement was
        /// prepared before this session began.
        statement: Arc<str>,
        /// Number of runs. 0 if the client only prepared the statement or fetched more rows from an earlier run.
        runs: u64,
        /// Digest of the bound values. `None` for simple queries and for several runs.
        values: Option<u64>,
        /// Number of rows returned or changed.
        rows: u64,
        /// Whether the server is idle in an open transaction. `None` if the server is still working.
        idle_in_transaction: Option<bool>,
    },
    /// The session ended.
    Ended,
    /// The test that used the database ended.
    TestEnded {
        /// The test's name in its test runner, or `None` if pgfresh doesn't know it.
        name: Option<Arc<str>>,
    },
}

impl SessionEvent {
    /// Merges `next` into this event if `next` is another run of the same statement. Returns true if it did.
    fn merge(&mut self, next: &Self) -> bool {
        let (
            SessionEventKind::Completed { statement, runs, values, rows, idle_in_transaction: None },
            SessionEventKind::Completed {
                statement: same,
                runs: more,
                rows: more_rows,
                idle_in_transaction: None,
                ..
            },
        ) = (&mut self.kind, &next.kind)
        else {
            return false;
        };
        let joins = self.session == next.session && Arc::ptr_eq(statement, same);
        if joins {
            *runs += more;
            *rows += more_rows;
            *values = None;
            self.at = next.at;
        }
        joins
    }
}

impl EventLog {
    /// Removes and returns all entries, roughly ordered by time, along with how many entries were lost since the last
    /// call because the log was full.
    #[must_use]
    pub fn take(&self) -> (Vec<SessionEvent>, u64) {
        let mut state = lock(&self.0);
        (std::mem::take(&mut state.entries), std::mem::take(&mut state.lost))
    }

    pub(crate) fn push(&self, event: SessionEvent) {
        let mut state = lock(&self.0);
        if state.entries.last_mut().is_some_and(|last| last.merge(&event)) {
            // An event merged into the previous entry, such as the next row of a batch insert, doesn't make the log
            // grow.
        } else if state.entries.len() < MAX_ENTRIES {
            state.entries.push(event);
        } else {
            state.lost += 1;
        }
    }

    /// Records that one entry was lost because the gateway can no longer follow a session.
    pub(crate) fn count_lost(&self) {
        lock(&self.0).lost += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_is_merged_into_one_event() {
        let (log, statement) = (EventLog::default(), Arc::<str>::from("INSERT"));
        let entry = |session, rests| SessionEvent {
            session,
            database: "d".into(),
            at: Instant::now(),
            kind: SessionEventKind::Completed {
                statement: Arc::clone(&statement),
                runs: 1,
                values: Some(1),
                rows: 2,
                idle_in_transaction: rests,
            },
        };
        for (session, rests) in [(1, None), (1, None), (1, None), (2, None), (1, None), (1, Some(false))] {
            log.push(entry(session, rests));
        }
        let runs = |entry: &SessionEvent| match entry.kind {
            SessionEventKind::Completed { runs, .. } => runs,
            _ => 0,
        };
        assert_eq!(log.take().0.iter().map(runs).collect::<Vec<_>>(), [3, 1, 1, 1]);
    }

    #[test]
    fn event_log_counts_lost_events() {
        let log = EventLog::default();
        let entry = SessionEvent {
            session: 1,
            database: "d".into(),
            at: Instant::now(),
            kind: SessionEventKind::Requested,
        };
        for _ in 0..MAX_ENTRIES + 3 {
            log.push(entry.clone());
        }
        let (entries, lost) = log.clone().take();
        assert_eq!((entries.len(), lost), (MAX_ENTRIES, 3));
        log.push(entry);
        assert_eq!((log.take().0.len(), log.take().1), (1, 0));
    }
}
