//! Follows the statements of a session, if somebody wants to know of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};

use pgwire::{Completed, StatementError, StatementEvent, StatementTracker};

use crate::cancel::Key;
use crate::ledger::{Entry, Ledger, What};
use crate::recent::{self, Failure, Ran, Recent, Ring, seconds_of};

/// Those who want to know.
#[derive(Debug, Default)]
pub(crate) struct Taps {
    pub(crate) ledger: OnceLock<Ledger>,
    /// There where databases of failed tests are kept.
    pub(crate) recent: Option<Recent>,
}

impl Taps {
    /// A tap for a new session with `database`, whose backend has this key, and for which its client has waited since then; none
    /// if nobody wants it.
    pub(crate) fn tap(&self, database: &str, key: Option<&Key>, since: Instant) -> Option<Box<Tap>> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let ledger = self.ledger.get().cloned();
        let ring = self.recent.as_ref().map(|recent| recent.ring(database));
        (ledger.is_some() || ring.is_some()).then(|| {
            let session = NEXT.fetch_add(1, Ordering::Relaxed);
            let listeners = Listeners { session, database: database.into(), ledger, ring };
            let now = Instant::now();
            let backend = key.map_or(0, Key::process);
            listeners.enter(now, What::Began { waited: now.saturating_duration_since(since), backend });
            Box::new(Tap { tracker: Some(StatementTracker::default()), listeners })
        })
    }
}

/// Sees all messages of one session.
#[derive(Debug)]
pub(crate) struct Tap {
    /// `None` once it cannot be followed any more.
    tracker: Option<StatementTracker>,
    listeners: Listeners,
}

#[derive(Debug)]
struct Listeners {
    session: u64,
    database: Arc<str>,
    ledger: Option<Ledger>,
    ring: Option<Ring>,
}

impl Tap {
    /// Takes note of what is passed on to the server now.
    pub(crate) fn client_says(&mut self, bytes: &[u8]) {
        self.note(|tracker, now, tell| tracker.client_says(bytes, now, tell));
    }

    /// Takes note of what is passed on to the client now.
    pub(crate) fn server_says(&mut self, bytes: &[u8]) {
        self.note(|tracker, now, tell| tracker.server_says(bytes, now, tell));
    }

    fn note(&mut self, say: impl FnOnce(&mut StatementTracker, Instant, &mut dyn FnMut(StatementEvent))) {
        let Self { tracker, listeners } = self;
        let Some(following) = tracker else { return };
        let now = Instant::now();
        say(following, now, &mut |event| listeners.hear(event, now));
        if following.is_lost() {
            *tracker = None;
            listeners.ledger.iter().for_each(Ledger::lose);
        }
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.listeners.enter(Instant::now(), What::Left);
    }
}

impl Listeners {
    fn hear(&self, event: StatementEvent, now: Instant) {
        let what = match event {
            StatementEvent::Requested => What::Asked,
            StatementEvent::Completed(Completed { statement, begun, ran, error, rests }) => {
                if let Some(ring) = self.ring.as_ref().filter(|_| ran || error.is_some()) {
                    let took = now.saturating_duration_since(begun);
                    let ran = Ran {
                        statement: statement.as_ref().to_owned(),
                        begun: seconds_of(SystemTime::now() - took),
                        seconds: took.as_secs_f64(),
                        error: error
                            .map(|StatementError { sqlstate, message }| Failure { code: sqlstate, message }),
                    };
                    recent::add(ring, ran);
                }
                What::Done { statement, runs: u64::from(ran), rests }
            }
        };
        self.enter(now, what);
    }

    fn enter(&self, at: Instant, what: What) {
        if let Some(ledger) = &self.ledger {
            ledger.put(Entry { session: self.session, database: Arc::clone(&self.database), at, what });
        }
    }
}
