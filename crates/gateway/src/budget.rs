//! Defines limits for the statements of one test.
//!
//! A test with a budget fails if it runs too many statements, for example because a change has introduced an N+1 query.

use std::time::Duration;

/// Limits for one test. `None` means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Budget {
    /// Maximum number of statements.
    pub statements: Option<u64>,
    /// Maximum number of times that one query can run with different values (N+1).
    pub n_plus_one: Option<u64>,
    /// Maximum total time of all statements.
    pub time: Option<Duration>,
}

impl Budget {
    /// Returns true if the budget contains no limit.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Fills in missing limits from `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            statements: self.statements.or(other.statements),
            n_plus_one: self.n_plus_one.or(other.n_plus_one),
            time: self.time.or(other.time),
        }
    }
}
