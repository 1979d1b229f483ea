//! Describes statements to explain, with the values that clients sent.

use pgwire::BoundValue;

/// A statement as a client sent it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct BoundStatement {
    /// Full text of a single statement, with placeholders such as `$1` for parameters.
    pub text: String,
    /// Parameter values. Empty for the simple protocol.
    pub parameters: Vec<BoundValue>,
    /// Number of times the client ran its prepared statement, or 0 if it didn't prepare the statement under a name.
    /// From the sixth run on, the server may choose a generic plan.
    pub prepared_runs: u64,
    /// Session settings that affect plans and name resolution, such as `search_path` and `role`, in the form that
    /// `set_config` takes. Empty if the session had the database's defaults.
    pub settings: Vec<(String, String)>,
}

/// A statement that a suite runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SuiteStatement {
    /// The statement with the values from one run.
    pub statement: BoundStatement,
    /// Text without values. Statements that differ only in values or settings have the same normalized text.
    pub normalized: String,
    /// Number of runs. If several recorded statements have the same normalized text, the first one counts all runs, and
    /// the others have 0.
    pub runs: u64,
    /// Names of the tests that ran the statement, sorted. If a test has no name, its database's name.
    pub tests: Vec<String>,
}

/// Kind of plan to request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PlanMode {
    /// The plan for the statement's values.
    Custom,
    /// The plan for unknown values, which the server may choose for prepared statements.
    Generic,
}
