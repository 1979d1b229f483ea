//! Results of an analysis: plans, findings and index suggestions.

use crate::{Plan, PlanMode, Shape};

/// Result of an analysis: what the scratch server's plans show about a suite's statements.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Analysis {
    /// Explained statements, one for each normalized text, most expensive first.
    pub statements: Vec<ExplainedStatement>,
    /// Findings, sorted by cost, highest first. Findings that a suggested index solves precede the others.
    pub findings: Vec<PlanFinding>,
    /// Indexes to create: a minimal set for all statements together.
    pub suggestions: Vec<IndexSuggestion>,
    /// Existing indexes, as SQL names, that no plan uses although the suite reads their tables. Excludes unique indexes
    /// and indexes that a constraint or foreign key needs.
    pub unused: Vec<String>,
    /// Statements without a plan, grouped by cause.
    pub unexplained: Vec<Unexplained>,
    /// Sentences, without a full stop, about limitations of EXPLAIN and about work that [`crate::Limits`] cut off.
    pub notes: Vec<String>,
}

/// All plans of a normalized statement.
#[derive(Debug, Clone, PartialEq)]
pub struct ExplainedStatement {
    /// Normalised text.
    pub normalized: String,
    /// Number of runs with any values.
    pub runs: u64,
    /// Names of the tests that ran the statement, sorted.
    pub tests: Vec<String>,
    /// Plans with different shapes, most expensive first. If several value sets lead to the same shape, only the most
    /// expensive of their plans is listed.
    pub plans: Vec<ExplainedPlan>,
}

/// A plan of a statement.
#[derive(Debug, Clone, PartialEq)]
pub struct ExplainedPlan {
    /// Kind of the plan. A generic plan is only listed if the server would choose it.
    pub mode: PlanMode,
    /// The plan.
    pub plan: Plan,
    /// Shape of the plan.
    pub shape: Shape,
    /// Names of the tests that ran the statement, with any values, sorted.
    pub tests: Vec<String>,
    /// Tables that the plan reads sequentially, largest first. Partitions count as part of their partitioned table.
    pub sequential: Vec<SequentialRead>,
}

/// A table that a plan reads sequentially.
#[derive(Debug, Clone, PartialEq)]
pub struct SequentialRead {
    /// Name of the table in SQL, such as `shop.orders`.
    pub table: String,
    /// Estimated row count of the table.
    pub rows: f64,
    /// Number of bytes that the plan reads. With a LIMIT, this can be less than the table's size.
    pub bytes: u64,
}

/// Kind of a [`PlanFinding`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PlanFindingKind {
    /// A sequential scan of a large table.
    SequentialScan,
    /// An index scan that discards most of the rows that the index finds.
    DiscardingScan,
    /// A sort that exceeds `work_mem`.
    LargeSort,
    /// A hash table that exceeds its memory.
    LargeHash,
    /// A nested loop with many repetitions.
    NestedLoop,
    /// A generic plan that is far more expensive than the custom plan.
    GenericPlan,
    /// An OFFSET that grows from call to call.
    GrowingOffset,
    /// A foreign key without an index, in a table whose referenced rows the suite deletes or updates.
    ForeignKeyWithoutIndex,
}

/// A problem in a statement's plan.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanFinding {
    /// Kind of the problem.
    pub kind: PlanFindingKind,
    /// Index of the statement in [`Analysis::statements`].
    pub statement: usize,
    /// Names of the tests that ran the statement, with any values, sorted.
    pub tests: Vec<String>,
    /// Node type as PostgreSQL calls it, such as `Seq Scan`.
    pub node: String,
    /// Name of the table in SQL. `None` if the node reads several tables.
    pub table: Option<String>,
    /// Estimated rows: the table's rows for a scan, the input rows for a sort or hash, and the repetitions for a nested
    /// loop.
    pub rows: f64,
    /// Bytes that the node reads or has to hold in memory. 0 where size isn't the problem.
    pub bytes: u64,
    /// Cost of the statement's current plan, in the planner's units. For a foreign key, the cost of its check.
    pub cost: f64,
    /// Cost after the suggested change. `None` if unknown.
    pub cost_after: Option<f64>,
    /// Shortest and longest estimated time that one call spends on the problem, in seconds. `None` if it can't be
    /// estimated from pages and rows.
    pub seconds: Option<(f64, f64)>,
    /// Facts that support the finding, in one or two sentences.
    pub evidence: String,
    /// Change to make, as one or two sentences or as SQL.
    pub change: String,
    /// Indexes of the suggestions in [`Analysis::suggestions`] that solve the problem together: `cost_after` needs all of
    /// them. Those on the finding's table come first. Empty if no suggestion solves the problem.
    pub suggestions: Vec<usize>,
}

/// An index to create.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexSuggestion {
    /// SQL statement, such as `CREATE INDEX ON shop.orders (customer_id)`.
    pub sql: String,
    /// Name of the table in SQL.
    pub table: String,
    /// Estimated size in bytes.
    pub bytes: u64,
    /// Statements that benefit from the index, largest gain first.
    pub gains: Vec<IndexGain>,
    /// Existing indexes, as SQL names, that the new index makes redundant.
    pub replaces: Vec<String>,
    /// Number of distinct statements in the suite that insert or change rows of the table, so that they have to
    /// maintain the index.
    pub writers: usize,
}

/// How much one statement gains from an index.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexGain {
    /// Index of the statement in [`Analysis::statements`].
    pub statement: usize,
    /// Cost without any suggested index.
    pub before: f64,
    /// Cost with this index and those in `with`.
    pub after: f64,
    /// Indexes of the other suggestions in [`Analysis::suggestions`] that the statement's plan uses.
    pub with: Vec<usize>,
    /// Whether the costs belong to a foreign-key check, which runs for each row that the statement deletes or updates.
    pub foreign_key: bool,
}

/// Statements that have no plan for the same reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unexplained {
    /// Reason as a clause, such as `PostgreSQL cannot explain utility statements`.
    pub cause: String,
    /// Number of distinct normalized statements.
    pub count: usize,
    /// An example: the normalized text of one of these statements.
    pub example: String,
}
