//! Results of an analysis: plans, findings and index suggestions.

use crate::{Plan, PlanMode, Shape};

/// Everything that the planner of a scratch server says about a suite's statements.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Analysis {
    /// Explained statements, one for each normalised text, most expensive first.
    pub statements: Vec<ExplainedStatement>,
    /// Findings: those that a suggested index solves come first, the most expensive first.
    pub findings: Vec<PlanFinding>,
    /// Indexes to create, a minimal set for all statements together.
    pub suggestions: Vec<IndexSuggestion>,
    /// Existing indexes, as they stand in SQL, that no plan uses although the suite reads their tables. Neither unique
    /// indexes nor those of constraints or foreign keys.
    pub unused: Vec<String>,
    /// Statements without a plan, by cause.
    pub unexplained: Vec<Unexplained>,
    /// Sentences, without a full stop, on what EXPLAIN does not show, and on work that [`crate::Limits`] left out.
    pub notes: Vec<String>,
}

/// All plans of one normalised statement.
#[derive(Debug, Clone, PartialEq)]
pub struct ExplainedStatement {
    /// Normalised text.
    pub normalized: String,
    /// Number of runs with any values.
    pub runs: u64,
    /// Names of the tests that ran it, sorted.
    pub tests: Vec<String>,
    /// Plans of different shapes, most expensive first. Several value sets with one shape have one plan here, the most expensive one.
    pub plans: Vec<ExplainedPlan>,
}

/// A plan of a statement.
#[derive(Debug, Clone, PartialEq)]
pub struct ExplainedPlan {
    /// Kind of the plan. A generic plan is listed if the server would choose it.
    pub mode: PlanMode,
    /// The plan.
    pub plan: Plan,
    /// Shape of the plan.
    pub shape: Shape,
    /// Names of the tests that ran the statement, with any values, sorted.
    pub tests: Vec<String>,
    /// Tables that the plan reads sequentially, largest first. Partitions count as their partitioned table.
    pub sequential: Vec<SequentialRead>,
}

/// A table that a plan reads sequentially.
#[derive(Debug, Clone, PartialEq)]
pub struct SequentialRead {
    /// Table as it stands in SQL, such as `shop.orders`.
    pub table: String,
    /// Estimated number of rows of the table.
    pub rows: f64,
    /// Size of the read part of the table in bytes. A LIMIT can make it smaller than the table.
    pub bytes: u64,
}

/// Kind of a [`PlanFinding`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PlanFindingKind {
    /// A sequential scan of a large table.
    SequentialScan,
    /// An index scan that discards most of the rows that the index gives.
    DiscardingScan,
    /// A sort that exceeds `work_mem`.
    LargeSort,
    /// A hash table that exceeds its memory.
    LargeHash,
    /// A nested loop with many repetitions.
    NestedLoop,
    /// A generic plan that costs far more than the custom plan.
    GenericPlan,
    /// An OFFSET that grows from call to call.
    GrowingOffset,
    /// A foreign key without an index, through which the suite deletes or updates referenced rows.
    ForeignKeyWithoutIndex,
}

/// A problem of one statement's plan.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanFinding {
    /// Kind of the problem.
    pub kind: PlanFindingKind,
    /// Index of the statement in [`Analysis::statements`].
    pub statement: usize,
    /// Names of the tests that ran the statement, with any values, sorted.
    pub tests: Vec<String>,
    /// Type of the plan's node in PostgreSQL's words, such as `Seq Scan`.
    pub node: String,
    /// Table as it stands in SQL. `None` if the node reads several.
    pub table: Option<String>,
    /// Estimated rows: of the table for scans, of the input for sorts and hashes, repetitions for nested loops.
    pub rows: f64,
    /// Bytes that the node reads or has to hold. 0 if that does not matter.
    pub bytes: u64,
    /// Cost of the statement's plan today, in the planner's units. The cost of the check for a foreign key.
    pub cost: f64,
    /// Cost after the change. `None` if unknown.
    pub cost_after: Option<f64>,
    /// Estimated duration of the problem's part of one call, in seconds, from and to. `None` if pages and rows do not
    /// tell it.
    pub seconds: Option<(f64, f64)>,
    /// Facts behind the finding, in one or two sentences.
    pub evidence: String,
    /// Change to make, in one or two sentences or as SQL.
    pub change: String,
    /// Index of the suggestion in [`Analysis::suggestions`] that solves it.
    pub suggestion: Option<usize>,
}

/// An index to create.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexSuggestion {
    /// Statement in SQL, such as `CREATE INDEX ON shop.orders (customer_id)`.
    pub sql: String,
    /// Table as it stands in SQL.
    pub table: String,
    /// Estimated size in bytes.
    pub bytes: u64,
    /// Statements that use the index, largest gain first.
    pub gains: Vec<IndexGain>,
    /// Existing indexes, as they stand in SQL, that the new index makes superfluous.
    pub replaces: Vec<String>,
    /// Number of distinct statements of the suite that add or change rows of the table and have to maintain the index.
    pub writers: usize,
}

/// The gain of one statement from an index.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IndexGain {
    /// Index of the statement in [`Analysis::statements`].
    pub statement: usize,
    /// Cost without any suggestion.
    pub before: f64,
    /// Cost with all suggestions.
    pub after: f64,
    /// Whether the costs are those of a foreign key's check, which the statement causes for each row.
    pub foreign_key: bool,
}

/// Statements without a plan, for one cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unexplained {
    /// Cause in a sentence's words, such as `PostgreSQL cannot explain utility statements`.
    pub cause: String,
    /// Number of distinct normalised statements.
    pub count: usize,
    /// One of the statements, normalised.
    pub example: String,
}
