//! Limits on the statements of one test, and the limits that a test has exceeded.
//!
//! A budget makes a test fail if it runs too many statements, e.g. after a change that introduced an N+1 query.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// Limits for one test. `None` means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Budget {
    /// Maximum number of statements that the test can run.
    pub statements: Option<u64>,
    /// Maximum number of times that one query can run with different values (N+1).
    pub n_plus_one: Option<u64>,
    /// Maximum total time of all statements.
    pub time: Option<Duration>,
}

impl Budget {
    /// Whether the budget has no limits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Takes each missing limit from `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            statements: self.statements.or(other.statements),
            n_plus_one: self.n_plus_one.or(other.n_plus_one),
            time: self.time.or(other.time),
        }
    }
}

/// A limit that a test has exceeded.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "limit", rename_all = "snake_case")]
pub enum ExceededLimit {
    /// The test ran too many statements.
    Statements {
        /// Maximum number in the budget.
        allowed: u64,
        /// Number of statements that the test ran.
        measured: u64,
    },
    /// One query ran too often with different values (N+1).
    NPlusOne {
        /// Maximum number in the budget.
        allowed: u64,
        /// Number of runs of the most frequent such query.
        measured: u64,
        /// The query's text.
        statement: String,
    },
    /// The statements took too long in total, in seconds.
    Time {
        /// Maximum time in the budget.
        allowed: f64,
        /// Time that the statements took.
        measured: f64,
    },
}

impl fmt::Display for ExceededLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Statements { allowed, measured } => {
                let ending = if *measured == 1 { "" } else { "s" };
                write!(f, "{measured} statement{ending}, {allowed} allowed")
            }
            Self::NPlusOne { allowed, measured, .. } => {
                write!(f, "one query ran {measured} times with different values, {allowed} allowed")
            }
            Self::Time { allowed, measured } => {
                write!(f, "{:.1} ms in the database, {:.1} ms allowed", measured * 1e3, allowed * 1e3)
            }
        }
    }
}
