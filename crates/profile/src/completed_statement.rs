//! The gateway's report about a completed statement.

use std::sync::Arc;
use std::time::Instant;

/// Work that a session has completed since its last request or its last report.
#[derive(Debug, Clone, Copy)]
pub struct CompletedStatement<'a> {
    /// Id of the session.
    pub session: u64,
    /// Database of the session.
    pub database: &'a Arc<str>,
    /// Text of the statement. Truncated if it is very long.
    pub statement: &'a Arc<str>,
    /// Number of runs.
    pub runs: u64,
    /// Digest of the bound values. `None` for a simple query, and if there were several runs.
    pub values: Option<u64>,
    /// Number of rows that the statement returned or changed.
    pub rows: u64,
    /// If no further response is pending: whether a transaction is open. `None` if one is pending.
    pub idle_in_transaction: Option<bool>,
    /// Time of the report.
    pub at: Instant,
}
