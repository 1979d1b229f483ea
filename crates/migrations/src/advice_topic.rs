//! Topics of advice, each with a section of the page.

/// A section of docs/migrations.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AdviceTopic {
    /// A change of a column's type that rewrites or scans the table.
    TypeChange,
    /// NOT NULL that scans the table, or that fails if it has rows.
    NotNull,
    /// A foreign key that scans both tables.
    ForeignKey,
    /// A unique or exclusion constraint that builds its index.
    UniqueConstraint,
    /// A primary key that builds its index or scans the table.
    PrimaryKey,
    /// A check of a table or domain that scans the table.
    CheckConstraint,
    /// An index that is built, rebuilt or dropped without CONCURRENTLY.
    Index,
    /// A default that rewrites the table.
    Default,
    /// A value of an enum that the same transaction added, or a renamed one.
    Enum,
    /// A column that old code may still use.
    ColumnDrop,
    /// A renamed column that old code may still use.
    ColumnRename,
    /// A table that old code may still use under its old name.
    TableRename,
    /// A table that old code may still use.
    TableDrop,
    /// Any other change that breaks statements of the suite.
    OldCode,
    /// A partition whose rows have to be checked.
    Partition,
    /// A trigger.
    Trigger,
    /// A generated column that rewrites the table.
    GeneratedColumn,
    /// An extension that production may lack.
    Extension,
    /// A materialized view that cannot be read while it is refreshed.
    MaterializedView,
    /// Many rows changed in one transaction.
    Backfill,
    /// No `lock_timeout`.
    LockTimeout,
    /// Statements that do not belong into one transaction.
    OneTransaction,
    /// Any other statement that scans or rewrites a table and blocks its use.
    Rewrite,
}

impl AdviceTopic {
    /// All topics, in the order of the page.
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

    /// Returns the anchor of the section, such as `type-change`. It also names the topic in JSON.
    #[must_use]
    pub fn anchor(self) -> String {
        self.heading().to_lowercase().replace(' ', "-")
    }
}
