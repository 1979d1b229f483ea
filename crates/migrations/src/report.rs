//! Builds a migration's report, which several modules format.

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

/// Page size in bytes.
const PAGE_SIZE: u64 = 8192;

/// The report of a migration.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MigrationReport {
    /// Statements in the order of [`Observations::statements`].
    pub statements: Vec<ReportedStatement>,
    /// Budgets that the migration exceeds. Empty if it exceeds none.
    pub over_budget: Vec<OverMigrationBudget>,
    /// Assumptions that the predictions make, one sentence each. Empty if the report has no predictions.
    pub assumptions: Vec<String>,
    /// A sentence for each thing that is missing from the report.
    pub unseen: Vec<String>,
    /// The run that the report is about.
    pub run: MigrationRun,
    /// Sizes that the tables and materialized views had before the migration.
    pub tables: Vec<TableSizes>,
    /// Result of the suite on the migrated database. `None` if no suite ran.
    pub suite: Option<SuiteOutcome>,
    /// For each migration with a known file: the file's path in the repository.
    pub files: BTreeMap<String, String>,
    /// Path of the settings file in the repository. SARIF attaches statements without a file to it.
    pub settings_file: String,
}

/// The run of a migration command, as a report describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MigrationRun {
    /// Revision whose template the command migrated, such as `main (1a2b3c4)`.
    pub base: String,
    /// The command on one line, without passwords.
    pub command: String,
    /// Exit code of the command.
    pub exit_code: u8,
    /// Whether a signal killed the command, or pgfresh received a signal while the command was running.
    pub is_interrupted: bool,
    /// PostgreSQL version that the migration ran on.
    pub postgres: String,
    /// Sentences about statements that waited for a lock which another session of the migration held.
    pub waits: Vec<String>,
    /// Source of the production table sizes, such as `statistics of 2026-11-20`. `None` if the sizes are unknown.
    pub production: Option<String>,
}

/// Sizes of a table in the template and in production.
#[derive(Debug, Clone, PartialEq)]
pub struct TableSizes {
    /// Name of the database.
    pub database: String,
    /// Name of the table.
    pub relation: RelationName,
    /// Size in the template.
    pub here: TableSize,
    /// Size in production. `None` if unknown.
    pub production: Option<TableSize>,
}

/// Size of a table in one place: in the template or in production.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TableSize {
    /// Number of rows.
    pub rows: f64,
    /// Size of the table's file and its TOAST table, in bytes.
    pub bytes: f64,
}

/// Result of running the old code's test suite on the migrated database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SuiteOutcome {
    /// The command on one line, without passwords.
    pub command: String,
    /// Exit code on the migrated database.
    pub exit_code: u8,
    /// Exit code on the database from before the migration. `None` if the suite passed on the migrated database,
    /// because this run wasn't necessary then.
    pub exit_code_before: Option<u8>,
    /// Statements that fail on the migrated database, but not before the migration.
    pub failures: Vec<BrokenStatement>,
    /// Names of tests that fail on the migrated database, but not before the migration. Contains only names that the
    /// test runner prints.
    pub failed_tests: Vec<String>,
}

/// A statement in the report.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReportedStatement {
    /// The facts that the laboratory observed.
    pub observed: ObservedStatement,
    /// Name that the migration tool gives the migration. `None` if unknown.
    pub migration: Option<String>,
    /// Line of the statement in the migration's file, starting at 1. `None` if the file doesn't contain the statement's
    /// text.
    pub line: Option<usize>,
    /// Predicted time in production. `None` if the production sizes are unknown, or if the statement's time doesn't
    /// grow with them.
    pub predicted: Option<Prediction>,
    /// Predicted time that production holds the statement's locks, which is until the end of its transaction. `None` in
    /// the same cases as `predicted`.
    pub predicted_held: Option<Prediction>,
    /// Statements of the suite that have to wait for this statement's locks.
    pub blocks: Vec<BlockedStatement>,
    /// Statements of the suite that this statement breaks: they fail after its transaction, but not before.
    pub breaks: Vec<BrokenStatement>,
    /// Safer ways to make the same change. Empty if the statement is safe.
    pub advice: Vec<StatementAdvice>,
    /// Reason from the exception that allows the statement. `None` if no exception matches.
    pub exception: Option<String>,
    /// Whether the migration tool sent the statement for its own purposes, such as a query on its ledger.
    pub is_bookkeeping: bool,
}

impl fmt::Display for Prediction {
    /// Formats the range, for example as `70 to 110 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&words::range(*self))
    }
}

/// A predicted time, as a range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// Lower end in seconds.
    pub low: f64,
    /// Upper end in seconds.
    pub high: f64,
}

/// A statement of the suite that has to wait for a lock of the migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockedStatement {
    /// SQL without values.
    pub statement: String,
    /// Names of the tests that run the statement, sorted.
    pub tests: Vec<String>,
    /// The relation that both statements lock.
    pub relation: RelationName,
    /// The mode that the suite's statement requests.
    pub wants: LockMode,
    /// The mode that the migration holds.
    pub held: LockMode,
    /// Why the statement locks the relation, such as "by the foreign key `orders_customer_id_fkey`". `None` if every
    /// run of the statement locks it.
    pub because: Option<String>,
}

/// A statement of the suite that fails on the migrated database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenStatement {
    /// SQL without values.
    pub statement: String,
    /// Names of the tests that run the statement, sorted.
    pub tests: Vec<String>,
    /// The error message from PostgreSQL.
    pub error: String,
}

/// Advice on replacing a dangerous statement with a safer one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementAdvice {
    /// Section of docs/migrations.md that explains the advice.
    pub topic: AdviceTopic,
    /// Why the statement is dangerous, as a short clause.
    pub danger: String,
    /// The safer way, as a short clause.
    pub instead: String,
}

/// A budget that the migration exceeds.
#[derive(Debug, Clone, PartialEq)]
pub struct OverMigrationBudget {
    /// Name of the budget in `pgfresh.toml`, such as `access_exclusive`.
    pub key: String,
    /// Index of the statement in the report.
    pub statement: usize,
    /// A line such as "`access_exclusive` is 70 to 110 s, the budget is 1 s".
    pub message: String,
}

impl MigrationReport {
    /// Creates a report that contains only the observed facts.
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
            // The report shows SQL on one line, where a leading comment would seem to comment out the whole statement.
            observed.sql = without_leading_comments(&observed.sql).into();
            ReportedStatement { observed, ..ReportedStatement::default() }
        });
        Self { statements: statements.collect(), unseen: observations.unseen, tables, ..Self::default() }
    }

    /// Returns true if the migration exceeds no budget and doesn't make the old code's suite fail.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.over_budget.is_empty() && self.suite.as_ref().is_none_or(SuiteOutcome::passes)
    }
}

impl SuiteOutcome {
    /// Returns true if the migration isn't to blame for a failure. Either the suite passes on the migrated database, or
    /// it also fails on the database from before the migration, and every failed statement and test fails on both. A
    /// command that the shell can't run doesn't pass, because it tests nothing.
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

/// Exit codes that a shell returns if it can't execute a command or doesn't find it.
const CANNOT_EXECUTE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Returns true for relations that store rows.
fn is_table(kind: RelationKind) -> bool {
    matches!(kind, RelationKind::Table | RelationKind::PartitionedTable | RelationKind::MaterializedView)
}
