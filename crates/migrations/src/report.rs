//! The parts of a migration's report, and its formats.

mod annotations;
mod document;
#[cfg(test)]
mod examples;
mod json;
mod markdown;
mod sarif;
#[cfg(test)]
mod tests;
mod text;
mod words;

use std::collections::BTreeMap;
use std::fmt;

use plans::{RelationKind, RelationName};

use crate::sql_text::without_leading_comments;
use crate::{AdviceTopic, LockMode, Observations, ObservedStatement};

/// Size of a page in bytes.
const PAGE_SIZE: u64 = 8192;

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
    /// The run that the report is about.
    pub run: MigrationRun,
    /// Sizes of the tables and materialized views before the migration.
    pub tables: Vec<TableSizes>,
    /// Result of the suite on the migrated database. `None` if none ran.
    pub suite: Option<SuiteOutcome>,
    /// Path in the repository of each migration whose file is known.
    pub files: BTreeMap<String, String>,
    /// Path in the repository of the settings, to which SARIF attaches statements without a file.
    pub settings_file: String,
}

/// The run of a migration command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MigrationRun {
    /// Revision whose template the command migrated, such as `main (1a2b3c4)`.
    pub base: String,
    /// The command on one line, without passwords.
    pub command: String,
    /// Exit code of the command.
    pub exit_code: u8,
    /// Whether a signal ended the command, or reached pgfresh while the command ran.
    pub is_interrupted: bool,
    /// Version of PostgreSQL.
    pub postgres: String,
    /// Sentences about statements that waited for a lock of another session of the migration.
    pub waits: Vec<String>,
    /// Source of production's sizes, such as `statistics of 2026-11-20`. `None` if they are unknown.
    pub production: Option<String>,
}

/// Sizes of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct TableSizes {
    /// Name of the database.
    pub database: String,
    /// The table.
    pub relation: RelationName,
    /// Size in the template.
    pub here: TableSize,
    /// Size in production. `None` if it is unknown.
    pub production: Option<TableSize>,
}

/// Size of a table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TableSize {
    /// Number of rows.
    pub rows: f64,
    /// Bytes of the table's file and of its TOAST table.
    pub bytes: f64,
}

/// Result of the old code's suite on the migrated database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SuiteOutcome {
    /// The command on one line, without passwords.
    pub command: String,
    /// Exit code on the migrated database.
    pub exit_code: u8,
    /// Exit code on the database before the migration. `None` if the suite did not run there, because it passed
    /// on the migrated database.
    pub exit_code_before: Option<u8>,
    /// Statements that failed on the migrated database alone.
    pub failures: Vec<BrokenStatement>,
    /// Names of the tests that failed on the migrated database alone, as far as the runner's output tells them.
    pub failed_tests: Vec<String>,
}

/// A statement in the report.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReportedStatement {
    /// Observed facts.
    pub observed: ObservedStatement,
    /// Name of the migration as its tool calls it. `None` if it is unknown.
    pub migration: Option<String>,
    /// Line of the statement in its migration's file, from 1. `None` if the file does not have its text.
    pub line: Option<usize>,
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
    /// Whether the migration tool sent the statement for itself, such as a query of its own table.
    pub is_bookkeeping: bool,
}

impl fmt::Display for Prediction {
    /// Writes a range such as `70 to 110 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&words::range(*self))
    }
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
    /// Why the statement locks the relation, such as "by the foreign key `orders_customer_id_fkey`". `None` if it does so
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
        let sizes = observations.sizes.iter().filter(|size| is_table(size.kind));
        let tables = sizes.map(|size| TableSizes {
            database: size.database.clone(),
            relation: size.relation.clone(),
            here: TableSize {
                rows: size.rows,
                bytes: report::as_f64((size.pages + size.toast_pages) * PAGE_SIZE),
            },
            production: None,
        });
        let tables = tables.collect();
        let statements = observations.statements.into_iter().map(|mut observed| {
            // On one line, a comment before the statement would seem to be all of it.
            observed.sql = without_leading_comments(&observed.sql).into();
            ReportedStatement { observed, ..ReportedStatement::default() }
        });
        Self { statements: statements.collect(), unseen: observations.unseen, tables, ..Self::default() }
    }

    /// Returns true if the migration exceeds no budget and no statement of the old code's suite fails because of it.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.over_budget.is_empty() && self.suite.as_ref().is_none_or(SuiteOutcome::passes)
    }
}

impl SuiteOutcome {
    /// Returns true if the suite passes on the migrated database, or fails on the one before the migration, too, and
    /// no statement and no test fails on the migrated one alone. A command that a shell cannot run shows nothing.
    #[must_use]
    pub fn passes(&self) -> bool {
        let failed_before = self.exit_code_before.is_some_and(|code| code != 0);
        let has_no_new = self.failures.is_empty() && self.failed_tests.is_empty();
        self.exit_code == 0 || failed_before && self.could_run() && has_no_new
    }

    fn could_run(&self) -> bool {
        !matches!(self.exit_code, CANNOT_EXECUTE | NOT_FOUND)
    }
}

/// Exit codes of a shell whose command cannot be executed or does not exist.
const CANNOT_EXECUTE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Returns true for relations that have rows of their own.
fn is_table(kind: RelationKind) -> bool {
    matches!(kind, RelationKind::Table | RelationKind::PartitionedTable | RelationKind::MaterializedView)
}
