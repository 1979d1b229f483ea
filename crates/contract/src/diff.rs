//! Defines the result of a comparison between a database and its template.

use serde::{Deserialize, Serialize};

/// Differences between a database and its template. All lists have limits, and counters show how much the lists omit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DatabaseDiff {
    /// Definitions that were created, dropped or changed.
    pub schema: Vec<ObjectChange>,
    /// Number of differing definitions that aren't in `schema`.
    pub schema_left_out: usize,
    /// Sequences whose values differ.
    pub sequences: Vec<SequenceChange>,
    /// Number of differing sequences that aren't in `sequences`.
    pub sequences_left_out: usize,
    /// Tables whose rows differ, ordered by number of changes, the largest first.
    pub tables: Vec<TableDiff>,
    /// Number of tables with differing rows that aren't in `tables`, and number of their differing rows.
    pub tables_left_out: LeftOut,
    /// Parts that pgfresh couldn't compare, with the reasons. A part is a table, all definitions or all sequences.
    pub not_compared: Vec<NotCompared>,
}

/// A definition that differs between the two sides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ObjectChange {
    /// Kind of the object, e.g. "table", "column" or "index".
    pub kind: String,
    /// Name with its schema, quoted as in SQL.
    pub name: String,
    /// Kind of the change.
    pub change: ObjectChangeKind,
    /// The template's definition, if it differs and has a human-readable form.
    pub old: Option<String>,
    /// The database's definition, if it differs and has a human-readable form.
    pub new: Option<String>,
    /// Differing catalog columns that the definition doesn't show.
    #[serde(default)]
    pub columns: Vec<FieldChange>,
}

/// Kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ObjectChangeKind {
    /// Only the database has the object.
    Created,
    /// Both sides have the object, but it differs.
    Changed,
    /// Only the template has the object.
    Dropped,
}

/// A sequence whose values differ between the two sides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SequenceChange {
    /// Name with its schema, quoted as in SQL.
    pub name: String,
    /// Value in the template.
    pub old: SequenceValue,
    /// Value in the database.
    pub new: SequenceValue,
}

/// Value of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SequenceValue {
    /// The sequence's column `last_value`.
    pub last_value: i64,
    /// Whether `nextval` has already returned this value.
    pub is_called: bool,
}

/// A table whose rows differ between the two sides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TableDiff {
    /// Name with its schema, quoted as in SQL.
    pub table: String,
    /// Columns that match rows of the two sides. Empty if pgfresh compared whole rows, in which case no row counts as
    /// updated.
    pub key: Vec<String>,
    /// Number of all differing rows, by kind of change.
    #[serde(flatten)]
    pub counts: RowCounts,
    /// Some of the differing rows, up to the limits for rows and bytes.
    pub rows: Vec<RowChange>,
    /// Number of differing rows that aren't in `rows`.
    pub rows_left_out: RowCounts,
}

/// Number of rows for each kind of change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RowCounts {
    /// Number of rows that only the database has.
    pub inserted: u64,
    /// Number of rows whose key exists on both sides, but with different values.
    pub updated: u64,
    /// Number of rows that only the template has.
    pub deleted: u64,
}

impl RowCounts {
    /// Returns the total number of rows.
    #[must_use]
    pub fn total(self) -> u64 {
        self.inserted + self.updated + self.deleted
    }
}

/// Numbers of tables and rows that a comparison omits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LeftOut {
    /// Number of tables.
    pub tables: usize,
    /// Number of differing rows in these tables.
    #[serde(flatten)]
    pub counts: RowCounts,
}

/// A row that differs between the two sides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum RowChange {
    /// Only the database has the row.
    Inserted {
        /// Values of all columns.
        values: Vec<Field>,
    },
    /// Both sides have the key, but with different values.
    Updated {
        /// Key of both rows.
        key: Vec<Field>,
        /// Columns whose values differ.
        columns: Vec<FieldChange>,
    },
    /// Only the template has the row.
    Deleted {
        /// Values of all columns.
        values: Vec<Field>,
    },
}

/// A column of a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Field {
    /// Column name.
    pub column: String,
    /// Value in the server's text format.
    pub value: CellValue,
}

/// A column of an updated row whose values differ.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FieldChange {
    /// Column name.
    pub column: String,
    /// Value in the template.
    pub old: CellValue,
    /// Value in the database.
    pub new: CellValue,
}

/// A value as text: `null`, a whole string, or a part of a long string.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum CellValue {
    /// The SQL value NULL.
    Null,
    /// The whole text.
    Whole(String),
    /// A part of a long text.
    Part {
        /// Text of this part.
        part: String,
        /// Number of characters or bytes before this part.
        from: usize,
        /// Length of the whole value, in characters or bytes.
        length: usize,
        /// Whether `from` and `length` count bytes. True for a `bytea`, whose part consists of hexadecimal digits.
        bytes: bool,
    },
}

/// A part of a database that pgfresh couldn't compare.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NotCompared {
    /// Name of a table with its schema, quoted as in SQL. Otherwise "definitions" or "sequences".
    pub name: String,
    /// Reason, on one line.
    pub reason: String,
}

impl DatabaseDiff {
    /// Returns true if the comparison found no difference.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.schema.is_empty()
            && self.sequences.is_empty()
            && self.tables.is_empty()
            && self.tables_left_out.tables == 0
    }
}

/// Differences between a database and its template, with the names of both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DiffResponse {
    /// Name of the database.
    pub database: String,
    /// Name of the failed test that used the database. Missing unless pgfresh kept the database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test: Option<String>,
    /// Name of the template.
    pub template: String,
    /// The differences.
    #[serde(flatten)]
    pub diff: DatabaseDiff,
}
