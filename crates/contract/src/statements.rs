//! Defines the statements of a test, and the limits that the test exceeded.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A statement that a session has run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExecutedStatement {
    /// First 1023 bytes of the statement, with `$1` and so on in place of parameter values.
    pub statement: String,
    /// Time at which the gateway sent the statement to the server, in seconds since 1970.
    pub begun: f64,
    /// Time until the server completed the statement, in seconds.
    pub seconds: f64,
    /// The statement's error. Missing if the statement succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<SqlError>,
}

/// Error that a failed statement caused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SqlError {
    /// SQLSTATE of the error.
    pub code: String,
    /// Primary message, truncated if it is very long.
    pub message: String,
}

/// Statements of a test since its lease began or was reset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RecordedStatements {
    /// Whether the counts and the list include every statement.
    pub complete: bool,
    /// Total number of runs.
    pub count: u64,
    /// Total time of all statements, in seconds.
    pub seconds: f64,
    /// Total number of rows that the statements returned or changed.
    pub rows: u64,
    /// Each distinct statement once, the most frequent first.
    pub statements: Vec<RecordedStatement>,
}

/// A statement of a test, with the totals of all its runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RecordedStatement {
    /// The statement on one line, with `?` in place of each value. Truncated if it is very long.
    pub statement: String,
    /// Number of runs.
    pub count: u64,
    /// Total time of all runs, in seconds.
    pub seconds: f64,
    /// Total number of rows that the runs returned or changed.
    pub rows: u64,
    /// Whether the statement is an N+1, i.e. a query that ran many times with different values.
    pub n_plus_one: bool,
}

/// A limit that a test has exceeded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
        /// Number of times that this query ran.
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

/// Statements of a test, compared with its budget.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Measurement {
    /// Report for the user. Missing if the test is within its budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Limits that the test exceeded. Empty if it is within its budget.
    pub over_budget: Vec<ExceededLimit>,
    /// Statements of the test.
    #[serde(flatten)]
    pub statements: RecordedStatements,
}

/// Response to a reset or a release that has something to report.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EndOfTest {
    /// URL of the kept database, after the release of a failed test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Descriptions of the test's faults that never fired. Missing if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfired_faults: Vec<String>,
    /// Statements of the test. Missing if the test is within its budget.
    #[serde(flatten)]
    pub measurement: Option<Measurement>,
    /// First statements of a failed test that ran on the replica while it lagged. Missing if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lagging_statements: Vec<LaggingStatement>,
}

/// A statement that ran on a replica while it lagged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LaggingStatement {
    /// First 1023 bytes of the statement.
    pub statement: String,
    /// The replica's lag when the statement completed: `paused` or `500ms`.
    pub lag: String,
}
