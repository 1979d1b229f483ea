//! Statements to explain, with the values that a client sent.

use pgwire::BoundValue;

/// One statement as a client sent it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct BoundStatement {
    /// The whole text of a single statement, with `$1` for its parameters.
    pub text: String,
    /// Values of the parameters. Empty for a simple query.
    pub parameters: Vec<BoundValue>,
    /// Number of runs of the client's prepared statement, or 0 if the client did not prepare it under a name. The
    /// server may choose a generic plan from the sixth run on.
    pub prepared_runs: u64,
    /// Settings of the client's session that concern plans and names, such as `search_path` and `role`, as `set_config`
    /// takes them. Empty if the session had the defaults of its database.
    pub settings: Vec<(String, String)>,
}

/// A statement of a suite.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SuiteStatement {
    /// The statement with the values of one run.
    pub statement: BoundStatement,
    /// Text without values. Statements that differ only in values or settings have the same normalized text.
    pub normalized: String,
    /// Number of runs. If a normalized text has several recorded statements, only the first one counts the runs, and
    /// the others have 0.
    pub runs: u64,
    /// Names of the tests that ran the statement, sorted. The name of the database if a test has no name.
    pub tests: Vec<String>,
}

/// Kind of plan to ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PlanMode {
    /// The plan for the values of the statement.
    Custom,
    /// The plan for unknown values, which the server may choose for prepared statements.
    Generic,
}
