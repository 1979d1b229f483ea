//! Who wants to know what sessions run, and until when.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use sys::lock;

/// Entries that wait to be taken: 5 MB, and 70 MB more if each has another statement of the greatest length.
const MOST: usize = 1 << 16;

/// What sessions run, entry by entry, for one who takes them out again and again; clones are the same.
///
/// Times are those of the gateway: from the moment a message is passed on to the server until its answer is passed on to
/// the client.
#[derive(Debug, Clone, Default)]
pub struct EventLog(Arc<Mutex<State>>);

/// The log of one gateway, once it is wanted; clones are the same.
#[derive(Debug, Clone, Default)]
pub struct EventSource(Arc<OnceLock<EventLog>>);

impl EventSource {
    /// Takes note that the test which has used `database` is over; its runner calls it `name`.
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

    /// The log, which is wanted from now on.
    pub(crate) fn follow(&self) -> EventLog {
        self.0.get_or_init(EventLog::default).clone()
    }
}

/// Stands for the session of what happens outside of one.
const NO_SESSION: u64 = u64::MAX;

#[derive(Debug, Default)]
struct State {
    entries: Vec<SessionEvent>,
    lost: u64,
}

/// Something that has happened in a session.
#[derive(Debug, Clone)]
pub struct SessionEvent {
    /// Which: a number that no other session of this process has; the greatest where it is none.
    pub session: u64,
    /// As the client calls it.
    pub database: Arc<str>,
    /// When.
    pub at: Instant,
    /// What.
    pub kind: SessionEventKind,
}

/// What can happen in a session.
#[derive(Debug, Clone)]
pub enum SessionEventKind {
    /// It has begun.
    Began {
        /// From the client's start-up message until a backend was there, the making of the database included.
        waited: Duration,
        /// The backend's process, as the server knows it; 0 if it does not say.
        backend: i32,
    },
    /// The server, which had nothing to do for it, has been asked for something.
    Requested,
    /// The server has done something since the last entry of this session.
    Completed {
        /// For which statement: its first 1023 bytes. Nothing is known of one that is older than its session.
        statement: Arc<str>,
        /// How many times it was run; not at all if it was only prepared, or if more was fetched of what it gives.
        runs: u64,
        /// Stands for the values that were bound; `None` in a simple query, and for several runs.
        values: Option<u64>,
        /// Rows that it returned or changed.
        rows: u64,
        /// If the server has nothing to do any more: whether a transaction is open.
        rests: Option<bool>,
    },
    /// It has ended.
    Ended,
    /// The test that has used the database is over.
    TestEnded {
        /// As its runner calls it, if that is known.
        name: Option<Arc<str>>,
    },
}

impl SessionEvent {
    /// Becomes what this and the next one are together, if that is the same statement once more; whether it is.
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
    /// Takes out all entries, nearly in order of time, and how many were lost since the last time because they were not taken in time.
    #[must_use]
    pub fn take(&self) -> (Vec<SessionEvent>, u64) {
        let mut state = lock(&self.0);
        (std::mem::take(&mut state.entries), std::mem::take(&mut state.lost))
    }

    pub(crate) fn put(&self, event: SessionEvent) {
        let mut state = lock(&self.0);
        if state.entries.last_mut().is_some_and(|last| last.join(&event)) {
            // One row of a batch after the other.
        } else if state.entries.len() < MOST {
            state.entries.push(event);
        } else {
            state.lost += 1;
        }
    }

    /// Takes note that a session cannot be followed any more.
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
    fn what_nobody_takes_is_counted() {
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
