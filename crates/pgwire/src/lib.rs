//! Parses and writes the parts of the `PostgreSQL` protocol that pgfresh needs. Both the gateway and
//! pgfresh's own client use this crate, which opens no sockets itself.
//!
//! ```text
//! start-up packet   length:4 code:4 …                SSLRequest, GSSENCRequest, CancelRequest, StartupMessage
//! frame             tag:1 length:4 body:length-4     everything after that, in both directions
//! ```
//!
//! [`FrameDecoder`] splits a stream into frames without buffering them, and [`Frame::first`] parses complete
//! frames in a buffer. [`StatementTracker`] finds the statements in a session's frames and measures how long
//! they take. [`TranscriptBuilder`] copies a session's requests, so that another session can repeat them.
//! [`SqlLexer`] splits SQL into tokens. [`NormalizedStatement`] is a statement without its values, and
//! [`QueryRuns`] detects repeated queries.
//!
//! Source: the manual's chapter "Frontend/Backend Protocol", 3.0 and 3.2.

mod conversation;
mod error;
mod frame;
mod message;
mod negotiation;
mod normalized;
mod query_runs;
mod savepoint;
mod scram;
mod sent_statement;
mod set_statement;
mod split;
mod sql;
mod startup;
mod statement;
mod statement_lookup;
mod statement_names;
mod statement_pattern;
mod traces;
mod transcript;
mod transcript_builder;
mod unanswered;
mod words;

pub use conversation::{ClientSide, Conversation};
pub use error::ErrorResponse;
pub use frame::{Frame, FrameDecoder, FramePrefix, HEADER, MalformedFrame, encode, frames, split_zero};
pub use message::{
    DISCARD_ALL, ENCRYPTED, NOT_ENCRYPTED, PASSWORD_REQUEST, TERMINATE, cancel_key, cancel_request, columns,
    is_frontend_tag, password, query,
};
pub use negotiation::{
    SupportedProtocols, negotiation, unsupported_protocol, with_parameter, without_negotiation,
};
pub use normalized::{NormalizedStatement, StatementKind};
pub use query_runs::{QueryRuns, RepeatedPart};
pub use savepoint::SavepointStatement;
pub use scram::{Exchange, Verifier, sasl_request, sasl_response};
pub use sent_statement::{BoundValue, SentStatement};
pub use set_statement::{SetStatement, SetTarget};
pub use split::{planned_query, split_statements, statement_places};
pub use sql::{SqlLexer, Token, TokenKind};
pub use startup::{Startup, StartupPacket, StartupParams};
pub use statement::{Completed, StatementError, StatementEvent, StatementTracker};
pub use statement_names::StatementNames;
pub use statement_pattern::{PlainStatement, PreparedPattern, matches_pattern, statement_pattern};
pub use traces::{SessionTraces, leaves_nothing};
pub use transcript::{RequestOutcome, RunningStatement, SessionTranscript, TranscribedRequest};
pub use transcript_builder::TranscriptBuilder;
pub use words::{begins_with, has_words};

#[cfg(test)]
mod corpus;
#[cfg(any(test, feature = "exercise"))]
pub mod exercise;
