//! Defines the transcript of a session: the client's requests and the server's responses.

use std::sync::Arc;
use std::time::Instant;

use crate::StatementError;

/// The requests of a session's client and their outcomes, from startup to the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionTranscript {
    /// Name of the database.
    pub database: String,
    /// Startup parameters without the database, such as `user` and `options`.
    pub parameters: Vec<(String, String)>,
    /// When the server was ready for the first request.
    pub began: Instant,
    /// Requests in the order that the client sent them.
    pub requests: Vec<TranscribedRequest>,
    /// Whether requests are missing at the end, because the transcript became too large or the builder couldn't follow
    /// the session.
    pub is_cut: bool,
}

/// Client messages that the server completes with a single ReadyForQuery: a Query, a function call, or
/// extended-protocol messages up to a Sync. COPY data belongs to the request that started the COPY.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranscribedRequest {
    /// The messages, each with its tag and length, exactly as sent.
    pub messages: Arc<[u8]>,
    /// When the first byte arrived.
    pub sent: Instant,
    /// The outcome. `None` if the server didn't respond before the session or the transcript ended.
    pub outcome: Option<RequestOutcome>,
}

/// How a server responded to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestOutcome {
    /// When ReadyForQuery arrived, or when the connection closed after an error.
    pub answered: Instant,
    /// Command tags of the successful statements, in order. A suspended portal doesn't have one.
    pub tags: Vec<String>,
    /// The first error.
    pub error: Option<StatementError>,
    /// Transaction status from ReadyForQuery: `I`, `T` or `E`. If the connection closed instead, this is `I`, because
    /// closing ends the transaction.
    pub status: u8,
}

/// A statement that a server is currently executing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningStatement {
    /// First 1023 bytes of the text. Empty if the transcript doesn't contain it.
    pub statement: String,
    /// When the server started to execute the statement.
    pub since: Instant,
}
