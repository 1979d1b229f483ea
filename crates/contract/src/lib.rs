//! Types of pgfresh's HTTP API: the bodies of requests and responses, and the errors.
//!
//! The server (`crates/api`), the command line and the Rust client use these types. The doc comments are the descriptions in
//! [`OPENAPI`], which a test generates from the types and from the table of operations in `openapi.rs`.
//!
//! ```text
//! lease ─────── begin, reset and end of leases; snapshots; holders
//! statements ── statements of a test, and the limits that it exceeded
//! diff ──────── changes since the template
//! status ────── state of the server
//! integresql ── integresql's API
//! error ─────── codes of errors, and their remedies
//! ```

mod diff;
mod error;
mod integresql;
mod lease;
#[cfg(test)]
mod openapi;
mod remedy;
mod statements;
mod status;

pub use diff::{
    CellValue, DatabaseDiff, DiffResponse, Field, FieldChange, LeftOut, NotCompared, ObjectChange,
    ObjectChangeKind, RowChange, RowCounts, SequenceChange, SequenceValue, TableDiff,
};
pub use error::{ErrorBody, ErrorCode, ErrorDescription};
pub use integresql::{InitializeRequest, IntegresqlConfig, IntegresqlDatabase, IntegresqlResponse};
pub use lease::{
    DatabaseDescription, HoldResponse, LeaseRequest, LeaseResponse, ResetRequest, SnapshotRequest,
    SnapshotResponse,
};
pub use remedy::Remedy;
pub use statements::{
    EndOfTest, ExceededLimit, ExecutedStatement, Measurement, RecordedStatement, RecordedStatements, SqlError,
};
pub use status::{
    DifferenceEntry, KeptEntry, LeakEntry, LeaseEntry, SessionCounts, StatusResponse, TemplateEntry,
    WorkTotal,
};

/// Description of all routes, which a test generates. `GET /v1/openapi.json` returns it.
pub const OPENAPI: &str = include_str!("../openapi.json");
