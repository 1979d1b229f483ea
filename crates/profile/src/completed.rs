//! Report of the gateway about a completed statement.

use std::sync::Arc;
use std::time::Instant;

/// Work of a session since its last request or its last report.
#[derive(Debug, Clone, Copy)]
pub struct CompletedStatement<'a> {
    /// Id of the session.
    pub session: u64,
    /// Database of the session.
    pub database: &'a Arc<str>,
    /// Text of the statement, or the beginning of it.
    pub statement: &'a Arc<str>,
    /// Number of runs.
    pub runs: u64,
    /// Digest of the bound values; `None` for a simple query, and for several runs.
    pub values: Option<u64>,
    /// Number of rows that the statement returned or changed.
    pub rows: u64,
    /// Whether a transaction is open, if no further response is pending; `None` if one is.
    pub rests: Option<bool>,
    /// Time of the report.
    pub at: Instant,
}
