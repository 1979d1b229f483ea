//! Log of session events for a profiler.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use sys::lock;

/// Most entries that wait for a reader: 5 MB, and 70 MB more if each has another statement of the greatest length.
const MOST: usize = 1 << 16;

/// Events of all sessions, for one reader that takes them out again and again; clones share the entries.
///
/// Times are those of the gateway: from the moment a message is passed on to the server until its answer is passed on to
/// the client.
#[derive(Debug, Clone, Default)]
pub struct EventLog(Arc<Mutex<State>>);

/// Event log of one gateway, which begins with its first reader; clones share it.
#[derive(Debug, Clone, Default)]
pub struct EventSource(Arc<OnceLock<EventLog>>);

impl EventSource {
    /// Logs the end of the test that used `database`. `name` is the test runner's name for the test.
    pub fn test_ended(&self, database: &str, name: Option<&str>) {
        if let Some(log) = self.log() {
            let kind = SessionEventKind::TestEnded { name: name.map(Into::into) };
            log.put(SessionEvent {
                session: NO_SESSION,
                database: database.into(),
                at: Instant::now(),
                kind,
            });
        }
    }

    pub(crate) fn log(&self) -> Option<&EventLog> {
        self.0.get()
    }

    /// Returns the log. Sessions that begin from now on write to it.
    pub(crate) fn follow(&self) -> EventLog {
        self.0.get_or_init(EventLog::default).clone()
    }
}

/// Session number of an event that happens outside of sessions.
const NO_SESSION: u64 = u64::MAX;

#[derive(Debug, Default)]
struct State {
    entries: Vec<SessionEvent>,
    lost: u64,
}

/// Event in a session.
#[derive(Debug, Clone)]
pub struct SessionEvent {
    /// Number of the session, unique in this process; `u64::MAX` for an event outside of sessions.
    pub session: u64,
    /// Name of the database, as the client calls it.
    pub database: Arc<str>,
    /// Moment of the event.
    pub at: Instant,
    /// Kind of the event, with its data.
    pub kind: SessionEventKind,
}

/// Kinds of session events.
#[derive(Debug, Clone)]
pub enum SessionEventKind {
    /// The session began.
    Began {
        /// Time from the client's startup message until it had a backend, including the creation of the database.
        waited: Duration,
        /// Process id of the backend; 0 if the server does not report it.
        backend: i32,
    },
    /// The client sent a request while the server was idle.
    Requested,
    /// The server completed a step since the session's last event.
    Completed {
        /// First 1023 bytes of the statement. Empty if the statement is older than its session.
        statement: Arc<str>,
        /// Number of runs; 0 if the client only prepared the statement, or fetched more rows of it.
        runs: u64,
        /// Digest of the bound values; `None` in a simple query, and for several runs.
        values: Option<u64>,
        /// Number of rows that the statement returned or changed.
        rows: u64,
        /// Whether a transaction is open, if the server is idle now; `None` if it is not.
        rests: Option<bool>,
    },
    /// The session ended.
    Ended,
    /// The test that used the database ended.
    TestEnded {
        /// Test runner's name for the test; `None` if pgfresh does not know it.
        name: Option<Arc<str>>,
    },
}

impl SessionEvent {
    /// Merges the next event into this one if it is another run of the same statement. Returns whether it did.
    fn join(&mut self, next: &Self) -> bool {
        let (
            SessionEventKind::Completed { statement, runs, values, rows, rests: None },
            SessionEventKind::Completed { statement: same, runs: more, rows: more_rows, rests: None, .. },
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
    /// Takes out all entries, nearly in order of time. Returns them, and the number of entries that were lost since the
    /// last call because the log was full.
    #[must_use]
    pub fn take(&self) -> (Vec<SessionEvent>, u64) {
        let mut state = lock(&self.0);
        (std::mem::take(&mut state.entries), std::mem::take(&mut state.lost))
    }

    pub(crate) fn put(&self, event: SessionEvent) {
        let mut state = lock(&self.0);
        if state.entries.last_mut().is_some_and(|last| last.join(&event)) {
            // The event is another row of a batch.
        } else if state.entries.len() < MOST {
            state.entries.push(event);
        } else {
            state.lost += 1;
        }
    }

    /// Counts a session that the gateway can no longer follow as a lost entry.
    pub(crate) fn lose(&self) {
        lock(&self.0).lost += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_one_entry() {
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
                rests,
            },
        };
        for (session, rests) in [(1, None), (1, None), (1, None), (2, None), (1, None), (1, Some(false))] {
            log.put(entry(session, rests));
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
        for _ in 0..MOST + 3 {
            log.put(entry.clone());
        }
        let (entries, lost) = log.clone().take();
        assert_eq!((entries.len(), lost), (MOST, 3));
        log.put(entry);
        assert_eq!((log.take().0.len(), log.take().1), (1, 0));
    }
}
