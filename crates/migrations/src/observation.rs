//! Observed facts about each statement.

use std::time::Duration;

use plans::{RelationKind, RelationName};

use crate::LockMode;

/// Everything that was observed of a migration.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observations {
    /// Statements in the order in which they ended. One that did not end comes last.
    pub statements: Vec<ObservedStatement>,
    /// Sizes of all tables, indexes and materialized views before the migration, of one database or several.
    pub sizes: Vec<RelationSize>,
    /// A clause for each thing that the laboratory did not see, to follow "not seen:". Empty if it saw everything.
    pub unseen: Vec<String>,
}

/// A statement of the migration.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ObservedStatement {
    /// Name of the database.
    pub database: String,
    /// Number of the session in the transcripts, from 0.
    pub session: usize,
    /// Text of the single statement, with `$1` for parameters.
    pub sql: String,
    /// Bound values.
    pub parameters: Vec<plans::BoundValue>,
    /// Number of the transaction, from 0. Each statement outside transactions has its own number. COMMIT and
    /// ROLLBACK belong to the transaction that they end.
    pub transaction: usize,
    /// Whether PostgreSQL refuses the statement in a transaction block, as CREATE INDEX CONCURRENTLY.
    pub is_outside_transactions: bool,
    /// Command tag, such as `ALTER TABLE`. `None` if the statement failed or did not end.
    pub tag: Option<String>,
    /// SQLSTATE and message of the error.
    pub error: Option<pgwire::StatementError>,
    /// Whether the statement still ran when the transcript ended, for example because it waited for a lock.
    pub is_unfinished: bool,
    /// Seconds from the client's request to the answer, in the tool's own run. Several statements that share an answer get equal
    /// parts of its time.
    pub seconds: f64,
    /// Seconds for which the locks of this statement were held, in the tool's own run: from its request to the end of
    /// its transaction.
    pub held_seconds: f64,
    /// Locks that this statement took, and that its transaction had not held in this mode or a stronger one, on
    /// relations from before the transaction. Sorted by relation and mode; only the strongest mode of each relation.
    pub locks: Vec<RelationLock>,
    /// Relations from before the transaction whose files the statement replaced.
    pub rewrites: Vec<Rewrite>,
    /// Tables from before the transaction that the statement read completely.
    pub scans: Vec<TableScan>,
    /// The session's `lock_timeout` for this statement. `None` if there was none.
    pub lock_timeout: Option<Duration>,
}

/// A lock on a relation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RelationLock {
    /// The relation.
    pub relation: RelationName,
    /// Kind of the relation.
    pub kind: RelationKind,
    /// Mode of the lock.
    pub mode: LockMode,
}

impl RelationLock {
    /// Returns true if writers of the relation wait for this lock. A materialized view has readers only, so its readers
    /// count.
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

/// New files of a relation, with all its rows or without them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rewrite {
    /// The relation.
    pub relation: RelationName,
    /// Kind of the relation.
    pub kind: RelationKind,
    /// Table of an index. `None` for all other relations.
    pub table: Option<RelationName>,
    /// Whether the statement emptied the relation (TRUNCATE) instead of copying it.
    pub is_emptied: bool,
}

/// Sequential scans of a table by one statement.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableScan {
    /// The table.
    pub relation: RelationName,
    /// Number of scans.
    pub scans: u64,
    /// Number of rows that all of them read.
    pub rows: u64,
}

/// Size of a relation.
#[derive(Debug, Clone, PartialEq)]
pub struct RelationSize {
    /// Name of the database.
    pub database: String,
    /// The relation.
    pub relation: RelationName,
    /// Kind of the relation.
    pub kind: RelationKind,
    /// Table of an index. `None` for all other relations.
    pub table: Option<RelationName>,
    /// Size in pages of 8 KiB.
    pub pages: u64,
    /// Size of its TOAST table in pages.
    pub toast_pages: u64,
    /// Number of rows, counted up to a million, else the planner's estimate.
    pub rows: f64,
}
