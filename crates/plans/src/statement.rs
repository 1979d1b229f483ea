//! Statements to explain, with the values that a client sent.

/// One statement as a client sent it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Statement {
    /// The whole text of a single statement, with `$1` for its parameters.
    pub text: String,
    /// Values of the parameters. Empty for a simple query.
    pub parameters: Vec<Parameter>,
    /// Number of runs of the client's prepared statement, or 0 if the client did not prepare it under a name. The
    /// server may choose a generic plan from the sixth run on.
    pub prepared_runs: u64,
}

/// The value of a parameter, as in the Parse and Bind messages of PostgreSQL's protocol.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Parameter {
    /// Object identifier of the type that the client declared, or 0 if the server chooses the type.
    pub type_oid: u32,
    /// 0 for text, 1 for binary.
    pub format: i16,
    /// Value in that format. `None` for NULL.
    pub value: Option<Vec<u8>>,
}

/// Kind of plan to ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PlanMode {
    /// The plan for the values of the statement.
    Custom,
    /// The plan for unknown values, which the server may choose for prepared statements.
    Generic,
}

/// A statement that a suite ran with one set of values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedStatement {
    /// The statement with its values.
    pub statement: Statement,
    /// The statement with `?` in place of each value, which groups statements.
    pub normalized: String,
    /// Number of runs with these values.
    pub runs: u64,
    /// Names of the tests that ran it, without duplicates.
    pub tests: Vec<String>,
}
