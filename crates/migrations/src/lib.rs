//! Shows what a migration's statements lock, scan, rewrite and break.
//!
//! A migration tool runs once against a leased database. Meanwhile the gateway records a transcript of the tool's
//! sessions, a [`pgwire::SessionTranscript`]. The laboratory is a second server with its own copy of the template. It
//! repeats the transcript and observes the locks, files and counters of each statement, so pgfresh never disturbs the
//! tool's sessions. Reported times come from the tool's own run. This crate prints nothing and doesn't depend on the
//! command line.

mod advice;
mod advice_topic;
mod attribution;
mod budget;
mod exceptions;
mod laboratory;
mod lock_mode;
mod observation;
mod prediction;
mod report;
mod sizes;
mod speeds;
mod sql_text;
pub mod suite;

pub use advice::{advise, fact_assumptions};
pub use advice_topic::AdviceTopic;
pub use attribution::{MigrationFiles, StatementOrigin, attribute, is_migration_file, tables_of_tools};
pub use budget::MigrationBudget;
pub use exceptions::{MigrationException, NamePattern, StatementPattern, apply_exceptions};
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use laboratory::{Laboratory, LaboratoryError};
pub use lock_mode::LockMode;
pub use observation::{
    ChangedRows, Observations, ObservedStatement, RelationLock, RelationSize, Rewrite, TableScan,
};
pub use prediction::{predict, predict_held, prediction_assumptions, unpredicted};
pub use report::{
    BlockedStatement, BrokenStatement, MigrationReport, MigrationRun, OverMigrationBudget, Prediction,
    ReportedStatement, StatementAdvice, SuiteOutcome, TableSize, TableSizes,
};
pub use sizes::{ParseTableRowsError, Production, SizesError, TableRows, TemplateTables};
pub use speeds::Speeds;
