//! The gateway's report about a statement that a session completed.

use std::sync::Arc;
use std::time::Instant;

/// Work that a session completed since its last request or its last report.
#[derive(Debug, Clone, Copy)]
pub struct CompletedStatement<'a> {
    /// Id of the session.
    pub session: u64,
    /// Database of the session.
    pub database: &'a Arc<str>,
    /// Text of the statement. The end of a very long text is missing.
    pub statement: &'a Arc<str>,
    /// Number of runs.
    pub runs: u64,
    /// Digest of the bound values. `None` for a simple query, and for more than one run.
    pub values: Option<u64>,
    /// Number of rows that the statement returned or changed.
    pub rows: u64,
    /// True if the session is idle in an open transaction, false if it is idle outside of one. `None` while further
    /// responses are pending.
    pub idle_in_transaction: Option<bool>,
    /// Time of the report.
    pub at: Instant,
}
