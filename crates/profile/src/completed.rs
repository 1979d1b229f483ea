//! What the gateway tells of a statement that is done.

use std::sync::Arc;
use std::time::Instant;

/// What a session has done since it was asked, or since the last time.
#[derive(Debug, Clone, Copy)]
pub struct CompletedStatement<'a> {
    /// Which session.
    pub session: u64,
    /// Of which database.
    pub database: &'a Arc<str>,
    /// The statement, or what it begins with.
    pub statement: &'a Arc<str>,
    /// How many times it ran.
    pub runs: u64,
    /// Stands for the values that were bound, if there are any beside its text.
    pub values: Option<u64>,
    /// Rows that it returned or changed.
    pub rows: u64,
    /// If nothing more is owed: whether a transaction is open.
    pub rests: Option<bool>,
    /// Now.
    pub at: Instant,
}
