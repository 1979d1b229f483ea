//! Follows a session's statements for its listeners: the event log, the history, the recorder, the collection and the
//! transcription.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime};

use contract::{ExecutedStatement, SqlError};
use lease::{Leases, ReplicaWatch};
use pgwire::{Completed, StartupParams, StatementError, StatementEvent, StatementTracker};
use sys::lock;

use crate::cancel::CancelKey;
use crate::events::{EventLog, EventSource, SessionEvent, SessionEventKind};
use crate::history::{self, StatementHistory, StatementRing, seconds_of};
use crate::session_settings::SessionSettings;
use crate::statement_collection::SessionCollector;
use crate::statement_recorder::{SharedRecord, StatementRecorder};
use crate::transcription::{SessionTranscriber, Transcription};

/// The listeners of a gateway.
#[derive(Debug, Default)]
pub(crate) struct Taps {
    pub(crate) events: EventSource,
    /// Statement history. `None` unless pgfresh keeps the databases of failed tests.
    pub(crate) history: Option<Arc<StatementHistory>>,
    pub(crate) recorder: Arc<StatementRecorder>,
    /// The last transcription.
    pub(crate) transcription: Mutex<Option<Arc<Transcription>>>,
}

/// The listeners that a session has in addition to the gateway-wide ones.
#[derive(Debug, Default)]
pub(crate) struct SessionListeners {
    /// The session's user. Empty without an event log, which alone needs it.
    pub(crate) user: Arc<str>,
    /// True if the session requests a database reset.
    pub(crate) resets: bool,
    pub(crate) record: Option<SharedRecord>,
    pub(crate) collector: Option<SessionCollector>,
    /// The transcription, and the session's startup parameters.
    pub(crate) transcription: Option<(Arc<Transcription>, StartupParams)>,
    /// Watches the replica's lag, if the session runs on a replica.
    pub(crate) replica: Option<Arc<ReplicaWatch>>,
}

impl Taps {
    /// Returns the transcription of all new sessions.
    pub(crate) fn transcribe(&self) -> Arc<Transcription> {
        let mut last = lock(&self.transcription);
        let open = last.take().filter(|last| !last.is_finished());
        Arc::clone(last.insert(open.unwrap_or_default()))
    }

    /// Returns the listeners for a new session in `database`. If the session has requested a database reset, the
    /// history removes the earlier statements.
    pub(crate) fn listeners(
        &self,
        database: &str,
        settings: &SessionSettings,
        params: &StartupParams,
        leases: &Leases,
    ) -> SessionListeners {
        let record = self.record(database, settings, leases);
        let user = self.events.log().and_then(|_| params.user()).unwrap_or_default();
        let user = String::from_utf8_lossy(user).into();
        if params.is_replication() {
            return SessionListeners { user, resets: settings.reset, record, ..SessionListeners::default() };
        }
        let transcription = lock(&self.transcription).clone();
        SessionListeners {
            user,
            resets: settings.reset,
            record,
            collector: self.collector(database, params, leases),
            transcription: transcription.map(|transcription| (transcription, params.clone())),
            replica: None,
        }
    }

    /// Returns the record for a new session in `database`, or `None` if the lease isn't recorded.
    fn record(&self, database: &str, settings: &SessionSettings, leases: &Leases) -> Option<SharedRecord> {
        if let Some(history) = self.history.as_ref().filter(|_| settings.reset) {
            history.clear(database);
        }
        self.recorder.record_for_session(database, settings, leases)
    }

    /// Returns a collector for the statements of a new session in `database`, or `None` if there is no collection or
    /// the database has no template.
    fn collector(&self, database: &str, params: &StartupParams, leases: &Leases) -> Option<SessionCollector> {
        let collection = self.events.collection().filter(|_| !Leases::is_always_there(database))?;
        Some(collection.session(database, leases.template(database)?, params))
    }

    /// Creates a tap for a new session in `database`, or returns `None` if no listener needs the session's statements.
    ///
    /// `key` is the cancel key of the session's backend, and `since` is the time of the client's request.
    pub(crate) fn tap(
        &self,
        database: &str,
        key: Option<&CancelKey>,
        since: Instant,
        listeners: SessionListeners,
    ) -> Option<Box<Tap>> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let SessionListeners { user, resets, record, collector, transcription, replica } = listeners;
        let backend = key.map_or(0, CancelKey::process);
        let transcriber = transcription
            .and_then(|(transcription, params)| transcription.session(database, &params, backend));
        let events = self.events.log().cloned();
        let ring = self.history.as_ref().map(|history| history.ring(database));
        let needs_statements = events.is_some()
            || ring.is_some()
            || record.is_some()
            || collector.is_some()
            || replica.is_some();
        if !needs_statements && transcriber.is_none() {
            return None;
        }
        let tracker =
            if collector.is_some() { StatementTracker::with_values() } else { StatementTracker::default() };
        let session = NEXT.fetch_add(1, Ordering::Relaxed);
        let database = database.into();
        let listeners = Subscribers { session, database, events, ring, record, collector, replica };
        let now = Instant::now();
        let waited = now.saturating_duration_since(since);
        listeners.log_event(now, SessionEventKind::Began { waited, user, resets, backend });
        Some(Box::new(Tap { tracker: needs_statements.then_some(tracker), listeners, transcriber }))
    }
}

/// Observes all messages of one session and reports statements to the listeners.
#[derive(Debug)]
pub(crate) struct Tap {
    /// Finds the statements in the messages. `None` after losing track of them, or if no listener needs them.
    tracker: Option<StatementTracker>,
    listeners: Subscribers,
    transcriber: Option<SessionTranscriber>,
}

#[derive(Debug)]
struct Subscribers {
    session: u64,
    database: Arc<str>,
    events: Option<EventLog>,
    ring: Option<StatementRing>,
    record: Option<SharedRecord>,
    collector: Option<SessionCollector>,
    replica: Option<Arc<ReplicaWatch>>,
}

impl Tap {
    /// Observes bytes in transit to the server.
    pub(crate) fn observe_client(&mut self, bytes: &[u8]) {
        let now = Instant::now();
        self.transcriber.iter().for_each(|transcriber| transcriber.observe_client(bytes, now));
        self.track(now, |tracker, emit| tracker.observe_client(bytes, now, emit));
    }

    /// Observes bytes in transit to the client.
    pub(crate) fn observe_server(&mut self, bytes: &[u8]) {
        let now = Instant::now();
        self.transcriber.iter().for_each(|transcriber| transcriber.observe_server(bytes, now));
        self.track(now, |tracker, emit| tracker.observe_server(bytes, now, emit));
    }

    /// Observes bytes from the server after the client has disconnected. Only transcripts need them.
    pub(crate) fn observe_server_without_client(&self, bytes: &[u8]) {
        self.transcriber.iter().for_each(|transcriber| transcriber.observe_server(bytes, Instant::now()));
    }

    fn track(
        &mut self,
        now: Instant,
        observe: impl FnOnce(&mut StatementTracker, &mut dyn FnMut(StatementEvent)),
    ) {
        let Self { tracker, listeners, .. } = self;
        let Some(following) = tracker else { return };
        observe(following, &mut |event| listeners.handle_event(event, now));
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
                if let Some(replica) = self.replica.as_ref().filter(|_| done.ran) {
                    replica.ran(&done.statement);
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
        let params = StartupParams::new([]);
        let tap = |taps: &Taps, listeners| taps.tap("d", None, now, listeners);
        let none = SessionListeners::default;
        assert!(tap(&Taps::default(), none()).is_none());
        let record = Some(SharedRecord::default());
        assert!(tap(&Taps::default(), SessionListeners { record, ..none() }).is_some());
        let history = Some(Arc::default());
        assert!(tap(&Taps { history, ..Taps::default() }, none()).is_some());
        let collector = Some(Arc::<StatementCollection>::default().session("d", "app".to_owned(), &params));
        assert!(tap(&Taps::default(), SessionListeners { collector, ..none() }).is_some());
        let taps = Taps::default();
        let transcription = taps.transcribe();
        assert!(Arc::ptr_eq(&transcription, &taps.transcribe()));
        let transcribed = || SessionListeners {
            transcription: Some((Arc::clone(&transcription), params.clone())),
            ..none()
        };
        let seen = tap(&taps, transcribed()).unwrap();
        assert!(seen.tracker.is_none() && transcription.finish().len() == 1);
        assert!(tap(&taps, transcribed()).is_none());
        assert!(!Arc::ptr_eq(&transcription, &taps.transcribe()));
        let _log = taps.events.follow();
        assert!(tap(&taps, none()).is_some());
    }
}
