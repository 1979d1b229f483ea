//! Follows a session's statements on behalf of its listeners: the event log, the history, the recorder and the
//! collection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use contract::{ExecutedStatement, SqlError};
use lease::Leases;
use pgwire::{Completed, StartupParams, StatementError, StatementEvent, StatementTracker};
use sys::lock;

use crate::cancel::CancelKey;
use crate::events::{EventLog, EventSource, SessionEvent, SessionEventKind};
use crate::history::{self, StatementHistory, StatementRing, seconds_of};
use crate::session_settings::SessionSettings;
use crate::statement_collection::SessionCollector;
use crate::statement_recorder::{SharedRecord, StatementRecorder};

/// The listeners of a gateway.
#[derive(Debug, Default)]
pub(crate) struct Taps {
    pub(crate) events: EventSource,
    /// Statement history. `None` unless pgfresh keeps the databases of failed tests.
    pub(crate) history: Option<Arc<StatementHistory>>,
    pub(crate) recorder: Arc<StatementRecorder>,
}

impl Taps {
    /// Returns the record for a new session in `database`, or `None` if the lease is not recorded. If the session has
    /// requested a database reset, the history forgets the earlier statements.
    pub(crate) fn record(
        &self,
        database: &str,
        settings: &SessionSettings,
        leases: &Leases,
    ) -> Option<SharedRecord> {
        if let Some(history) = self.history.as_ref().filter(|_| settings.reset) {
            history.clear(database);
        }
        self.recorder.record_for_session(database, settings, leases)
    }

    /// Returns a collector for the statements of a new session in `database`, or `None` if there is no collection or
    /// the database has no template.
    pub(crate) fn collector(
        &self,
        database: &str,
        params: &StartupParams,
        leases: &Leases,
    ) -> Option<SessionCollector> {
        let collection = self.events.collection().filter(|_| !Leases::is_always_there(database))?;
        Some(collection.session(database, leases.template(database)?, params))
    }

    /// Creates a tap for a new session in `database`, or returns `None` if no listener needs the session's statements.
    ///
    /// `key` is the cancel key of the session's backend, and `since` is the time of the client's request. `record` and
    /// `collector` are listeners of this session.
    pub(crate) fn tap(
        &self,
        database: &str,
        key: Option<&CancelKey>,
        since: Instant,
        record: Option<SharedRecord>,
        collector: Option<SessionCollector>,
    ) -> Option<Box<Tap>> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let events = self.events.log().cloned();
        let ring = self.history.as_ref().map(|history| history.ring(database));
        (events.is_some() || ring.is_some() || record.is_some() || collector.is_some()).then(|| {
            let session = NEXT.fetch_add(1, Ordering::Relaxed);
            let tracker = if collector.is_some() {
                StatementTracker::with_values()
            } else {
                StatementTracker::default()
            };
            let listeners =
                Subscribers { session, database: database.into(), events, ring, record, collector };
            let now = Instant::now();
            let backend = key.map_or(0, CancelKey::process);
            listeners.log_event(
                now,
                SessionEventKind::Began { waited: now.saturating_duration_since(since), backend },
            );
            Box::new(Tap { tracker: Some(tracker), listeners })
        })
    }
}

/// Observes all messages of one session and reports statements to the listeners.
#[derive(Debug)]
pub(crate) struct Tap {
    /// Finds the statements in the messages. `None` after losing track of them.
    tracker: Option<StatementTracker>,
    listeners: Subscribers,
}

#[derive(Debug)]
struct Subscribers {
    session: u64,
    database: Arc<str>,
    events: Option<EventLog>,
    ring: Option<StatementRing>,
    record: Option<SharedRecord>,
    collector: Option<SessionCollector>,
}

impl Tap {
    /// Observes bytes in transit to the server.
    pub(crate) fn observe_client(&mut self, bytes: &[u8]) {
        self.track(|tracker, now, tell| tracker.client_says(bytes, now, tell));
    }

    /// Observes bytes in transit to the client.
    pub(crate) fn observe_server(&mut self, bytes: &[u8]) {
        self.track(|tracker, now, tell| tracker.server_says(bytes, now, tell));
    }

    fn track(&mut self, say: impl FnOnce(&mut StatementTracker, Instant, &mut dyn FnMut(StatementEvent))) {
        let Self { tracker, listeners } = self;
        let Some(following) = tracker else { return };
        let now = Instant::now();
        say(following, now, &mut |event| listeners.handle_event(event, now));
        if following.is_lost() {
            *tracker = None;
            listeners.events.iter().for_each(EventLog::count_lost);
            listeners.record.iter().for_each(|record| lock(record).mark_incomplete());
            listeners.collector.iter().for_each(SessionCollector::count_lost);
        }
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.listeners.log_event(Instant::now(), SessionEventKind::Ended);
    }
}

impl Subscribers {
    fn handle_event(&mut self, event: StatementEvent, now: Instant) {
        let kind = match event {
            StatementEvent::Requested => SessionEventKind::Requested,
            StatementEvent::Completed(done) => {
                if let Some(record) = &self.record {
                    lock(record).add(&done, now.saturating_duration_since(done.begun).as_secs_f64());
                }
                if let Some(collector) = &mut self.collector {
                    collector.add(&done);
                }
                let Completed { statement, begun, ran, values, rows, error, rests, .. } = done;
                if let Some(ring) = self.ring.as_ref().filter(|_| ran || error.is_some()) {
                    let took = now.saturating_duration_since(begun);
                    let executed = ExecutedStatement {
                        statement: statement.as_ref().to_owned(),
                        begun: seconds_of(SystemTime::now() - took),
                        seconds: took.as_secs_f64(),
                        error: error
                            .map(|StatementError { sqlstate, message }| SqlError { code: sqlstate, message }),
                    };
                    history::add(ring, begun, executed);
                }
                SessionEventKind::Completed {
                    statement,
                    runs: u64::from(ran),
                    values,
                    rows,
                    idle_in_transaction: rests,
                }
            }
        };
        self.log_event(now, kind);
    }

    fn log_event(&self, at: Instant, kind: SessionEventKind) {
        if let Some(events) = &self.events {
            events.push(SessionEvent {
                session: self.session,
                database: Arc::clone(&self.database),
                at,
                kind,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement_collection::StatementCollection;

    #[test]
    fn session_is_observed_only_with_a_subscriber() {
        let now = Instant::now();
        assert!(Taps::default().tap("d", None, now, None, None).is_none());
        assert!(Taps::default().tap("d", None, now, Some(SharedRecord::default()), None).is_some());
        let history = Some(Arc::default());
        assert!(Taps { history, ..Taps::default() }.tap("d", None, now, None, None).is_some());
        let params = StartupParams::new([]);
        let collector = Arc::<StatementCollection>::default().session("d", "app".to_owned(), &params);
        assert!(Taps::default().tap("d", None, now, None, Some(collector)).is_some());
        let taps = Taps::default();
        let _log = taps.events.follow();
        assert!(taps.tap("d", None, now, None, None).is_some());
    }
}
