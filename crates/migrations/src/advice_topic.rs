//! Names the topics of advice. Each topic has a section in docs/migrations.md.

/// A topic of advice, which is also a section of docs/migrations.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AdviceTopic {
    /// A changed column type that makes PostgreSQL rewrite or scan the table.
    TypeChange,
    /// A NOT NULL that makes PostgreSQL scan the table, or that fails if the table has rows.
    NotNull,
    /// A foreign key whose check scans both tables.
    ForeignKey,
    /// A unique or exclusion constraint that has to build its index.
    UniqueConstraint,
    /// A primary key that has to build its index or scan the table.
    PrimaryKey,
    /// A CHECK constraint of a table or domain whose validation scans the table.
    CheckConstraint,
    /// An index that is created, rebuilt or dropped without CONCURRENTLY.
    Index,
    /// A column default that makes PostgreSQL rewrite the table.
    Default,
    /// An enum value that is used in the transaction that added it, or that is renamed.
    Enum,
    /// A dropped column that old code may still use.
    ColumnDrop,
    /// A renamed column that old code may still use.
    ColumnRename,
    /// A table that old code may still use under its old name.
    TableRename,
    /// A dropped table that old code may still use.
    TableDrop,
    /// Any other change that breaks statements of the test suite.
    OldCode,
    /// A partition whose rows PostgreSQL has to check.
    Partition,
    /// A trigger whose creation blocks writes of the table.
    Trigger,
    /// A generated column that makes PostgreSQL rewrite the table.
    GeneratedColumn,
    /// An extension that the production server may lack.
    Extension,
    /// A materialized view that can't be read while it is refreshed.
    MaterializedView,
    /// A statement that changes many rows in one transaction.
    Backfill,
    /// A statement that may wait for its lock forever, because no `lock_timeout` is set.
    LockTimeout,
    /// Statements that shouldn't share a transaction.
    OneTransaction,
    /// Any other statement that scans or rewrites a table and blocks its use.
    Rewrite,
}

impl AdviceTopic {
    /// All topics, in the order of their sections.
    pub const ALL: [Self; 23] = [
        Self::LockTimeout,
        Self::OneTransaction,
        Self::TypeChange,
        Self::Default,
        Self::GeneratedColumn,
        Self::NotNull,
        Self::CheckConstraint,
        Self::ForeignKey,
        Self::UniqueConstraint,
        Self::PrimaryKey,
        Self::Index,
        Self::Partition,
        Self::Enum,
        Self::ColumnDrop,
        Self::ColumnRename,
        Self::TableRename,
        Self::TableDrop,
        Self::OldCode,
        Self::Trigger,
        Self::Extension,
        Self::MaterializedView,
        Self::Backfill,
        Self::Rewrite,
    ];

    /// Returns the heading of the section.
    #[must_use]
    pub fn heading(self) -> &'static str {
        match self {
            Self::TypeChange => "Type change",
            Self::NotNull => "Not null",
            Self::ForeignKey => "Foreign key",
            Self::UniqueConstraint => "Unique constraint",
            Self::PrimaryKey => "Primary key",
            Self::CheckConstraint => "Check constraint",
            Self::Index => "Index",
            Self::Default => "Default",
            Self::Enum => "Enum",
            Self::ColumnDrop => "Column drop",
            Self::ColumnRename => "Column rename",
            Self::TableRename => "Table rename",
            Self::TableDrop => "Table drop",
            Self::OldCode => "Old code",
            Self::Partition => "Partition",
            Self::Trigger => "Trigger",
            Self::GeneratedColumn => "Generated column",
            Self::Extension => "Extension",
            Self::MaterializedView => "Materialized view",
            Self::Backfill => "Backfill",
            Self::LockTimeout => "Lock timeout",
            Self::OneTransaction => "One transaction",
            Self::Rewrite => "Rewrite",
        }
    }

    /// Returns the section's anchor, such as `type-change`. It identifies the topic in JSON, too.
    #[must_use]
    pub fn anchor(self) -> String {
        self.heading().to_lowercase().replace(' ', "-")
    }
}
