//! Implements the gateway, which gives every connecting client a fresh database, even if the database doesn't exist
//! yet.
//!
//! To clients, a [`Gateway`] looks like a `PostgreSQL` server with one TCP port and one unix socket. For each session,
//! the gateway gets a database and a backend from [`lease::Leases`]; from then on, it forwards bytes between the client
//! and the backend. It parses little more than message headers and doesn't know how databases are created.
//!
//! In rollback isolation, the gateway runs all sessions of a lease (the right to use a database under a name) within
//! one transaction. See the `rollback` module. Sessions of a lease with faults pass through the `faults` module.
//!
//! ```text
//! client ── listener ── session ─┬─ startup ── connect ── forward ── backend
//!                                ├─ cancel request ─────────────────── server
//!                                └─ HTTP ── an HttpService
//! ```

mod access;
mod budget;
mod buffer;
mod cancel;
mod certificate;
mod channel_binding;
mod closing;
mod connections;
mod duration;
mod error_message;
mod events;
mod faults;
mod forward;
mod frame_buffer;
mod gateway;
mod handshake;
mod history;
mod http;
mod listener;
mod loopback;
mod notices;
mod planner_settings;
mod record;
mod rollback;
mod session;
mod session_settings;
mod state;
mod statement_collection;
mod statement_recorder;
mod statement_tap;
mod stream;
#[cfg(test)]
mod testing;
mod tls;
mod transcription;
mod workers;

pub use access::{Access, Advertised, ParseAdvertisedError, SocketFile, requires_scram};
pub use budget::Budget;
pub use certificate::{CertificateError, ServerCertificate};
pub use duration::parse_span;
pub use events::{EventLog, EventSource, SessionEvent, SessionEventKind};
pub use faults::{Fault, FaultEffect, FaultError, Faults, PlannedFault, UnfiredFault};
pub use gateway::{BoundGateway, Gateway, GatewayError, GatewayOptions};
pub use history::{KeptDatabase, StatementHistory};
pub use http::HttpService;
pub use loopback::SetupEncryption;
pub use record::TestMeasurement;
pub use statement_collection::{CollectedRun, CollectedStatement, CollectedStatements, StatementCollection};
pub use statement_recorder::{StatementRecorder, TestOnLaggingReplica, TestOverBudget};
pub use stream::{DisconnectWatcher, Stream};
pub use transcription::{Transcription, WaitingSession};
pub use workers::THREAD_NAME;
