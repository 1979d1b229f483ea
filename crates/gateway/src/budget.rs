//! Limits for the statements of one test, and the limits that a test has exceeded.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// Limits for one test; `None` stands for no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Budget {
    /// Most statements that the test may run.
    pub statements: Option<u64>,
    /// Most runs of one query with different values (N+1).
    pub n_plus_one: Option<u64>,
    /// Longest time that all statements may take together.
    pub time: Option<Duration>,
}

impl Budget {
    /// Whether the budget limits nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Fills in the missing limits from `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            statements: self.statements.or(other.statements),
            n_plus_one: self.n_plus_one.or(other.n_plus_one),
            time: self.time.or(other.time),
        }
    }
}

/// Limit that a test has exceeded.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "limit", rename_all = "snake_case")]
pub enum ExceededLimit {
    /// Number of statements.
    Statements {
        /// Most that the budget allows.
        allowed: u64,
        /// Number of statements in the test.
        measured: u64,
    },
    /// Number of runs of one query as an N+1.
    NPlusOne {
        /// Most that the budget allows.
        allowed: u64,
        /// Runs of the query that ran most often.
        measured: u64,
        /// Text of that query.
        statement: String,
    },
    /// Time that all statements took together, in seconds.
    Time {
        /// Most that the budget allows.
        allowed: f64,
        /// Time in the test.
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
