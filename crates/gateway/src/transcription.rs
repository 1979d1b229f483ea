//! Transcribes sessions: the messages that clients sent, and the outcome of each request. Transcribing doesn't change
//! the messages that the client and the server receive.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use pgwire::{RunningStatement, SessionTranscript, StartupParams, TranscriptBuilder};
use sys::lock;

/// Maximum size of all transcripts, in bytes.
const MAX_BYTES: usize = 256 << 20;

/// Transcripts of all sessions that begin until [`Self::finish`], except replication sessions.
#[derive(Debug)]
pub struct Transcription {
    max_bytes: usize,
    bytes: AtomicUsize,
    /// Sessions in the order of their start. `None` once the transcription is finished.
    sessions: Mutex<Option<Vec<Arc<Mutex<TranscribedSession>>>>>,
}

/// A session with a running statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingSession {
    /// Name of the database.
    pub database: String,
    /// Process id of the backend, or 0 if the server doesn't report it.
    pub backend: i32,
    /// The statement that the server is running. During a COPY, the server might be waiting for the client.
    pub running: RunningStatement,
}

#[derive(Debug)]
struct TranscribedSession {
    builder: TranscriptBuilder,
    database: String,
    backend: i32,
    is_open: bool,
}

/// Copies the messages of one session to its transcript.
#[derive(Debug)]
pub(crate) struct SessionTranscriber {
    transcription: Arc<Transcription>,
    session: Arc<Mutex<TranscribedSession>>,
}

impl Default for Transcription {
    fn default() -> Self {
        Self::with_limit(MAX_BYTES)
    }
}

impl Transcription {
    fn with_limit(max_bytes: usize) -> Self {
        Self { max_bytes, bytes: AtomicUsize::new(0), sessions: Mutex::new(Some(Vec::new())) }
    }

    /// Begins the transcript of a session in `database` that is ready for its first request. Returns `None` if the
    /// transcription is finished.
    pub(crate) fn session(
        self: &Arc<Self>,
        database: &str,
        params: &StartupParams,
        backend: i32,
    ) -> Option<SessionTranscriber> {
        let mut sessions = lock(&self.sessions);
        let sessions = sessions.as_mut()?;
        let builder = TranscriptBuilder::new(database.to_owned(), params, Instant::now());
        self.bytes.fetch_add(builder.size(), Ordering::Relaxed);
        let database = database.to_owned();
        let session = Arc::new(Mutex::new(TranscribedSession { builder, database, backend, is_open: true }));
        sessions.push(Arc::clone(&session));
        Some(SessionTranscriber { transcription: Arc::clone(self), session })
    }

    /// Returns true if no further session is transcribed.
    pub(crate) fn is_finished(&self) -> bool {
        lock(&self.sessions).is_none()
    }

    /// Returns the open sessions with a running statement, in start order. Only the server knows
    /// whether they wait for a lock.
    #[must_use]
    pub fn waiting(&self) -> Vec<WaitingSession> {
        let sessions = lock(&self.sessions).clone().unwrap_or_default();
        let waiting = sessions.iter().filter_map(|session| {
            let session = lock(session);
            let running = session.builder.running().filter(|_| session.is_open)?;
            Some(WaitingSession { database: session.database.clone(), backend: session.backend, running })
        });
        waiting.collect()
    }

    /// Ends the transcription and returns all transcripts, in the order that the sessions started. Transcripts of
    /// open sessions end with their requests without a response. A second call returns an empty list.
    #[must_use]
    pub fn finish(&self) -> Vec<SessionTranscript> {
        let sessions = lock(&self.sessions).take().unwrap_or_default();
        sessions.into_iter().map(|session| lock(&session).builder.finish()).collect()
    }
}

impl SessionTranscriber {
    /// Copies bytes in transit to the server.
    pub(crate) fn observe_client(&self, bytes: &[u8], now: Instant) {
        self.follow(|builder| builder.observe_client(bytes, now), true);
    }

    /// Reads bytes in transit to the client.
    pub(crate) fn observe_server(&self, bytes: &[u8], now: Instant) {
        self.follow(|builder| builder.observe_server(bytes, now), false);
    }

    /// Passes bytes to the builder. If all transcripts together are too large, cuts this transcript unless its last
    /// request is complete.
    fn follow(&self, observe: impl FnOnce(&mut TranscriptBuilder), is_client: bool) {
        let Self { transcription, session } = self;
        let Transcription { max_bytes, bytes, .. } = &**transcription;
        let builder = &mut lock(session).builder;
        let before = builder.size();
        observe(builder);
        let all = add_difference(bytes, before, builder.size());
        if all > *max_bytes && (is_client || builder.is_running()) {
            let before = builder.size();
            builder.cut();
            add_difference(bytes, before, builder.size());
        }
    }
}

impl Drop for SessionTranscriber {
    fn drop(&mut self) {
        let mut session = lock(&self.session);
        session.builder.close(Instant::now());
        session.is_open = false;
    }
}

/// Adds `after` minus `before` to `sum` and returns the result.
fn add_difference(sum: &AtomicUsize, before: usize, after: usize) -> usize {
    let difference = after.wrapping_sub(before);
    sum.fetch_add(difference, Ordering::Relaxed).wrapping_add(difference)
}

#[cfg(test)]
mod tests;
