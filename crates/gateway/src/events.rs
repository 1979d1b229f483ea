//! Event log that lets a profiler follow all sessions.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use sys::lock;

/// Maximum number of entries that wait for the reader. They take 5 MB, and 70 MB more if each contains a different
/// statement of maximum length.
const MOST: usize = 1 << 16;

/// Log with the events of all sessions. One reader takes the entries out repeatedly. Clones share the entries.
///
/// All times are measured by the gateway. A statement's time begins when the gateway sends it to the server, and ends
/// when the gateway sends the response to the client.
#[derive(Debug, Clone, Default)]
pub struct EventLog(Arc<Mutex<State>>);

/// Source of a gateway's event log. Nothing is logged until a reader calls [`Self::follow`]. Clones share the log.
#[derive(Debug, Clone, Default)]
pub struct EventSource(Arc<OnceLock<EventLog>>);

impl EventSource {
    /// Logs the end of the test that used `database`. `name` is the test's name in its test runner.
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

/// Session number of an event that does not belong to a session.
const NO_SESSION: u64 = u64::MAX;

#[derive(Debug, Default)]
struct State {
    entries: Vec<SessionEvent>,
    lost: u64,
}

/// An event in a session.
#[derive(Debug, Clone)]
pub struct SessionEvent {
    /// The session's number, unique in this process. `u64::MAX` if the event does not belong to a session.
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
        /// Time from the client's startup message until the session had a backend. Includes the creation of the
        /// database.
        waited: Duration,
        /// Process id of the backend, or 0 if the server does not report it.
        backend: i32,
    },
    /// The client sent a request while the server was idle.
    Requested,
    /// First 1023 bytes of the statement. Empty if the statement was prepared before this session began.
    Completed {
        /// First 1023 bytes of the statement. Empty if the gateway never saw its text, because it was prepared before
        /// this session began.
        statement: Arc<str>,
        /// Number of runs. 0 if the client only prepared the statement, or fetched more rows from it.
        runs: u64,
        /// Digest of the bound values. `None` for a simple query, and if there were several runs.
        values: Option<u64>,
        /// Number of rows that the statement returned or changed.
        rows: u64,
        /// If the server is idle now: whether a transaction is open. `None` if the server is still at work.
        rests: Option<bool>,
    },
    /// The session ended.
    Ended,
    /// The test that used the database ended.
    TestEnded {
        /// The test's name in its test runner, or `None` if pgfresh does not know it.
        name: Option<Arc<str>>,
    },
}

impl SessionEvent {
    /// Merges the next event into this one if it is another run of the same statement. Returns whether it was merged.
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
    /// Removes all entries and returns them, roughly ordered by time. The second value is the number of entries lost
    /// since the last call because the log was full.
    #[must_use]
    pub fn take(&self) -> (Vec<SessionEvent>, u64) {
        let mut state = lock(&self.0);
        (std::mem::take(&mut state.entries), std::mem::take(&mut state.lost))
    }

    pub(crate) fn put(&self, event: SessionEvent) {
        let mut state = lock(&self.0);
        if state.entries.last_mut().is_some_and(|last| last.join(&event)) {
            // The log only grows if the event can't be merged into the previous one, e.g. a further row of a batch
            // insert.
        } else if state.entries.len() < MOST {
            state.entries.push(event);
        } else {
            state.lost += 1;
        }
    }

    /// Records one lost entry, for a session that the gateway can no longer follow.
    pub(crate) fn lose(&self) {
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
