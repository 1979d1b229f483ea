//! What a test may do in its database, and where it went beyond that.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// Limits for one test; `None` is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Budget {
    /// How many statements it may run.
    pub statements: Option<u64>,
    /// How often one query may run as an N+1.
    pub n_plus_one: Option<u64>,
    /// How long its statements may take in all.
    pub time: Option<Duration>,
}

impl Budget {
    /// Whether nothing is limited.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Takes each limit that this has not from `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            statements: self.statements.or(other.statements),
            n_plus_one: self.n_plus_one.or(other.n_plus_one),
            time: self.time.or(other.time),
        }
    }
}

/// A limit that a test went beyond.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "limit", rename_all = "snake_case")]
pub enum ExceededLimit {
    /// How many statements ran.
    Statements {
        /// By the budget.
        allowed: u64,
        /// In the test.
        measured: u64,
    },
    /// How often a query ran as an N+1.
    NPlusOne {
        /// By the budget.
        allowed: u64,
        /// In the test: runs of the query that ran most often.
        measured: u64,
        /// That query.
        statement: String,
    },
    /// How long all statements took together, in seconds.
    Time {
        /// By the budget.
        allowed: f64,
        /// In the test.
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
