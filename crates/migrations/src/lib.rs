//! Shows what the statements of a migration lock, scan, rewrite and break.
//!
//! A migration tool runs once against a leased database, and the gateway keeps a transcript of its sessions:
//! [`pgwire::SessionTranscript`]. The laboratory is another server, on another copy of the template. It repeats the
//! transcript, and looks at the locks, files and counters of each statement. The tool's sessions are never
//! disturbed. Times are those of the tool's own run. This crate prints nothing and knows nothing about the command line.

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

pub use advice::advise;
pub use advice_topic::AdviceTopic;
pub use attribution::{MigrationFiles, StatementOrigin, attribute, is_migration_file, tables_of_tools};
pub use budget::MigrationBudget;
pub use exceptions::{MigrationException, NamePattern, StatementPattern, apply_exceptions};
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use laboratory::{Laboratory, LaboratoryError};
pub use lock_mode::LockMode;
pub use observation::{Observations, ObservedStatement, RelationLock, RelationSize, Rewrite, TableScan};
pub use prediction::{predict, predict_held, prediction_assumptions, unpredicted};
pub use report::{
    BlockedStatement, BrokenStatement, MigrationReport, MigrationRun, OverMigrationBudget, Prediction,
    ReportedStatement, StatementAdvice, SuiteOutcome, TableSize, TableSizes,
};
pub use sizes::{ParseTableRowsError, Production, SizesError, TableRows, TemplateTables};
pub use speeds::Speeds;
