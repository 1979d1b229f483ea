//! The parts of a migration's report.

use plans::RelationName;

use crate::{AdviceTopic, LockMode, Observations, ObservedStatement};

/// The report of a migration.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MigrationReport {
    /// Statements in the order of [`Observations::statements`].
    pub statements: Vec<ReportedStatement>,
    /// Budgets that the migration exceeds. Empty if it passes.
    pub over_budget: Vec<OverMigrationBudget>,
    /// Assumptions of the predictions, a sentence each. Empty without predictions.
    pub assumptions: Vec<String>,
    /// A sentence for each thing that the report lacks.
    pub unseen: Vec<String>,
}

/// A statement in the report.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReportedStatement {
    /// Observed facts.
    pub observed: ObservedStatement,
    /// Name of the migration as its tool calls it. `None` if it is unknown.
    pub migration: Option<String>,
    /// Time in production. `None` without production's sizes, or if the statement's time does not grow with them.
    pub predicted: Option<Prediction>,
    /// Seconds for which production's locks are held until the end of the transaction. `None` as for `predicted`.
    pub predicted_held: Option<Prediction>,
    /// Statements of the suite that wait for the locks of this statement.
    pub blocks: Vec<BlockedStatement>,
    /// Statements of the suite that fail after this statement's transaction and did not fail before it.
    pub breaks: Vec<BrokenStatement>,
    /// Safer ways. Empty if the statement is safe.
    pub advice: Vec<StatementAdvice>,
    /// Reason for the exception that the user has listed for this statement.
    pub exception: Option<String>,
}

/// A range of seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// Lower end in seconds.
    pub low: f64,
    /// Upper end in seconds.
    pub high: f64,
}

/// A statement of the suite that waits for a lock of the migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockedStatement {
    /// Text without values.
    pub statement: String,
    /// Names of the tests that run it, sorted.
    pub tests: Vec<String>,
    /// Relation that both lock.
    pub relation: RelationName,
    /// Mode that the suite's statement wants.
    pub wants: LockMode,
    /// Mode that the migration holds.
    pub held: LockMode,
    /// Why the statement locks the relation, such as "by the foreign key orders_customer_id_fkey". `None` if it does so
    /// in each run.
    pub because: Option<String>,
}

/// A statement of the suite that fails on the migrated database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenStatement {
    /// Text without values.
    pub statement: String,
    /// Names of the tests that run it, sorted.
    pub tests: Vec<String>,
    /// PostgreSQL's message.
    pub error: String,
}

/// A safer way than a dangerous statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementAdvice {
    /// Section of the page.
    pub topic: AdviceTopic,
    /// Why the statement is dangerous, a clause for one line.
    pub danger: String,
    /// Safer way, a clause for one line.
    pub instead: String,
}

/// A budget that the migration exceeds.
#[derive(Debug, Clone, PartialEq)]
pub struct OverMigrationBudget {
    /// Key of the budget in `pgfresh.toml`, such as `access_exclusive`.
    pub key: String,
    /// Number of the statement in the report, from 0.
    pub statement: usize,
    /// A line such as "`access_exclusive` is 70 to 110 s, the budget is 1 s".
    pub message: String,
}

impl MigrationReport {
    /// Creates a report with the observed facts and nothing else.
    #[must_use]
    pub fn of(observations: Observations) -> Self {
        let statements = observations.statements.into_iter();
        let statements =
            statements.map(|observed| ReportedStatement { observed, ..ReportedStatement::default() });
        Self { statements: statements.collect(), unseen: observations.unseen, ..Self::default() }
    }
}
