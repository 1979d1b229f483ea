//! A transcript of a session: its client's requests and the server's answers.

use std::sync::Arc;
use std::time::Instant;

use crate::StatementError;

/// Requests of one session's client and the server's answers, from the start-up to the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionTranscript {
    /// Name of the database.
    pub database: String,
    /// Parameters of the start-up message without the database, such as `user` and `options`.
    pub parameters: Vec<(String, String)>,
    /// When the server was ready for the first request.
    pub began: Instant,
    /// Requests in the order in which the client sent them.
    pub requests: Vec<TranscribedRequest>,
    /// Whether requests are missing at the end, because the transcript became too large or could not be followed.
    pub is_cut: bool,
}

/// Messages of a client that the server answers with one ReadyForQuery: a Query, a function call, or messages of the
/// extended protocol up to a Sync. The data of a COPY belong to the request that began it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranscribedRequest {
    /// The messages, each with its tag and length, exactly as sent.
    pub messages: Arc<[u8]>,
    /// When the first byte came.
    pub sent: Instant,
    /// `None` if the server did not answer before the session or the transcript ended.
    pub outcome: Option<RequestOutcome>,
}

/// How a server answered a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestOutcome {
    /// When ReadyForQuery came, or when the connection was closed after an error.
    pub answered: Instant,
    /// Command tags of the statements that succeeded, in their order. A portal that was suspended has none.
    pub tags: Vec<String>,
    /// The first error.
    pub error: Option<StatementError>,
    /// Transaction status of ReadyForQuery: `I`, `T` or `E`. `I` if the connection was closed instead, which ends the
    /// transaction.
    pub status: u8,
}

/// A statement that a server executes at present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningStatement {
    /// First 1023 bytes of the text. Empty if the transcript doesn't have it.
    pub statement: String,
    /// When the server began to execute it.
    pub since: Instant,
}
