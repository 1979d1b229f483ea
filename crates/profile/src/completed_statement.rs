//! Defines the gateway's report on a statement that a session completed.

use std::sync::Arc;
use std::time::Instant;

/// Work that a session has completed since its last request or its last report.
#[derive(Debug, Clone, Copy)]
pub struct CompletedStatement<'a> {
    /// ID of the session.
    pub session: u64,
    /// Database of the session.
    pub database: &'a Arc<str>,
    /// Text of the statement. A very long text is truncated.
    pub statement: &'a Arc<str>,
    /// Number of runs.
    pub runs: u64,
    /// Digest of the bound values. `None` for a simple query or more than one run.
    pub values: Option<u64>,
    /// Number of rows returned or changed by the statement.
    pub rows: u64,
    /// Whether the session is idle in an open transaction, as opposed to outside of one. `None` while further responses
    /// are pending.
    pub idle_in_transaction: Option<bool>,
    /// Time of the report.
    pub at: Instant,
}
