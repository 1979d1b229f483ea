//! Defines the observed facts about each statement of a migration.

use std::time::Duration;

use plans::{RelationKind, RelationName};

use crate::LockMode;

/// Everything that the laboratory observed about a migration.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observations {
    /// Statements in the order in which they ended. A statement that didn't end comes last.
    pub statements: Vec<ObservedStatement>,
    /// Sizes that all tables, indexes and materialized views had before the migration. They may be in several
    /// databases.
    pub sizes: Vec<RelationSize>,
    /// A clause for each thing that the laboratory didn't see, to be printed after "not seen:". Empty if it saw
    /// everything.
    pub unseen: Vec<String>,
}

/// A statement of the migration, with the facts that the laboratory observed about it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ObservedStatement {
    /// Name of the database that the statement ran in.
    pub database: String,
    /// Index of the session in the transcripts, starting at 0.
    pub session: usize,
    /// SQL of this single statement, with placeholders such as `$1` for parameters.
    pub sql: String,
    /// Values that the client bound to the parameters.
    pub parameters: Vec<plans::BoundValue>,
    /// Number of the transaction, starting at 0. Each statement outside transactions has its own number. COMMIT and
    /// ROLLBACK have the number of the transaction that they end.
    pub transaction: usize,
    /// Whether PostgreSQL refuses the statement in a transaction block, as it does for CREATE INDEX CONCURRENTLY.
    pub is_outside_transactions: bool,
    /// Command tag, such as `ALTER TABLE`. `None` if the statement failed or didn't end.
    pub tag: Option<String>,
    /// SQLSTATE and message of the error. `None` if the statement didn't fail.
    pub error: Option<pgwire::StatementError>,
    /// Whether the statement was still running when the transcript ended, for example because it waited for a lock.
    pub is_unfinished: bool,
    /// Seconds from the client's request to the response, in the tool's own run. If several statements share a
    /// response, each gets an equal part of its time.
    pub seconds: f64,
    /// Seconds that this statement's locks were held in the tool's own run, from its request to the end of its
    /// transaction.
    pub held_seconds: f64,
    /// Whether a later ROLLBACK TO released the statement's locks before the transaction ended.
    pub is_rolled_back: bool,
    /// Locks that this statement took on relations from before the transaction. Leaves out a lock if the transaction
    /// already held the same or a stronger mode on the relation. Contains only the strongest mode for each relation,
    /// and is sorted by relation.
    pub locks: Vec<RelationLock>,
    /// Relations from before the transaction that got new files from the statement.
    pub rewrites: Vec<Rewrite>,
    /// Tables from before the transaction that the statement read completely.
    pub scans: Vec<TableScan>,
    /// Tables from before the transaction with rows that the statement updated or deleted, also in functions, triggers
    /// and cascades. Sorted by relation.
    pub changed: Vec<ChangedRows>,
    /// The session's `lock_timeout` while the statement ran. `None` if there was no timeout.
    pub lock_timeout: Option<Duration>,
    /// Why the laboratory doesn't know the locks, rewrites and scans, as a clause such as "permission denied". `None` if
    /// it knows them.
    pub unobserved: Option<String>,
}

/// A lock on a relation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RelationLock {
    /// Name of the relation.
    pub relation: RelationName,
    /// Kind of the relation.
    pub kind: RelationKind,
    /// Mode of the lock.
    pub mode: LockMode,
}

impl RelationLock {
    /// Returns true if writers of the relation have to wait for this lock. Clients only read a materialized view, so
    /// there the method checks for waiting readers.
    #[must_use]
    pub fn blocks_writes(&self) -> bool {
        let wanted = if self.kind == RelationKind::MaterializedView {
            LockMode::AccessShare
        } else {
            LockMode::RowExclusive
        };
        self.mode.conflicts_with(wanted)
    }
}

/// A relation's replacement by new files, either with all its rows or emptied.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rewrite {
    /// Name of the relation.
    pub relation: RelationName,
    /// Kind of the relation.
    pub kind: RelationKind,
    /// The index's table. `None` if the relation isn't an index.
    pub table: Option<RelationName>,
    /// Whether the statement emptied the relation (TRUNCATE) instead of copying it.
    pub is_emptied: bool,
}

/// Sequential scans of a table by one statement.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableScan {
    /// Name of the table.
    pub relation: RelationName,
    /// Number of scans.
    pub scans: u64,
    /// Number of rows that all scans read together.
    pub rows: u64,
}

/// Rows of a table that one statement updated or deleted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangedRows {
    /// Name of the table, or of the partition.
    pub relation: RelationName,
    /// Number of rows in one transaction. For a statement that commits several transactions, their average.
    pub rows: u64,
}

/// Size of a relation before the migration.
#[derive(Debug, Clone, PartialEq)]
pub struct RelationSize {
    /// Name of the database.
    pub database: String,
    /// Name of the relation.
    pub relation: RelationName,
    /// Kind of the relation.
    pub kind: RelationKind,
    /// The index's table. `None` if the relation isn't an index.
    pub table: Option<RelationName>,
    /// Size in 8 KiB pages.
    pub pages: u64,
    /// Size of the relation's TOAST table in 8 KiB pages.
    pub toast_pages: u64,
    /// Number of rows. If it exceeds a million, this is the planner's estimate.
    pub rows: f64,
}
