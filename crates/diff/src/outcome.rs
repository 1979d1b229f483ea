//! Result of a comparison, as data.

use serde::{Deserialize, Serialize};

/// Differences of a database from its template. All lists are bounded, and counters have the rest.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DatabaseDiff {
    /// Created, dropped or changed definitions.
    pub schema: Vec<ObjectChange>,
    /// Number of differing definitions that `schema` leaves out.
    pub schema_left_out: usize,
    /// Sequences with another value.
    pub sequences: Vec<SequenceChange>,
    /// Number of differing sequences that `sequences` leaves out.
    pub sequences_left_out: usize,
    /// Tables whose rows differ, those with most changes first.
    pub tables: Vec<TableDiff>,
    /// Tables whose rows differ and that `tables` leaves out.
    pub tables_left_out: LeftOut,
    /// Tables, or all definitions or sequences, that pgfresh could not compare, with reasons.
    pub not_compared: Vec<NotCompared>,
}

/// Differing definition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ObjectChange {
    /// Kind of the object, such as "table", "column" or "index".
    pub kind: String,
    /// Name with its schema, quoted as SQL needs it.
    pub name: String,
    /// Kind of the change.
    pub change: What,
    /// Definition in the template, if it differs and has a form that people can read.
    pub old: Option<String>,
    /// Definition in the database, if it differs and has a form that people can read.
    pub new: Option<String>,
    /// Differing columns of catalogs that the definition does not show.
    #[serde(default)]
    pub columns: Vec<FieldChange>,
}

/// Kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Only the database has the object.
    Created,
    /// Both have the object, in different forms.
    Changed,
    /// Only the template has the object.
    Dropped,
}

/// Sequence with another value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequenceChange {
    /// Name with its schema, quoted as SQL needs it.
    pub name: String,
    /// Value in the template.
    pub old: SequenceValue,
    /// Value in the database.
    pub new: SequenceValue,
}

/// Value of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequenceValue {
    /// Column `last_value` of the sequence.
    pub last_value: i64,
    /// Whether `nextval` has already returned this value.
    pub is_called: bool,
}

/// Table whose rows differ.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TableDiff {
    /// Name with its schema, quoted as SQL needs it.
    pub table: String,
    /// Columns that match the rows of both sides. Empty if pgfresh compared whole rows; then no row counts as
    /// updated.
    pub key: Vec<String>,
    /// Numbers of all differing rows.
    #[serde(flatten)]
    pub counts: RowCounts,
    /// Some of the differing rows, within the limits for rows and bytes.
    pub rows: Vec<RowChange>,
    /// Numbers of the differing rows that `rows` leaves out.
    pub rows_left_out: RowCounts,
}

/// Numbers of rows by kind of change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowCounts {
    /// Rows that only the database has.
    pub inserted: u64,
    /// Rows whose key both have, with different values.
    pub updated: u64,
    /// Rows that only the template has.
    pub deleted: u64,
}

impl RowCounts {
    /// Returns the sum of all kinds.
    #[must_use]
    pub fn total(self) -> u64 {
        self.inserted + self.updated + self.deleted
    }
}

/// Numbers of tables and rows that a comparison leaves out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Number of tables.
    pub tables: usize,
    /// Number of their differing rows.
    #[serde(flatten)]
    pub counts: RowCounts,
}

/// Differing row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum RowChange {
    /// Only the database has the row.
    Inserted {
        /// Values of all columns.
        values: Vec<Field>,
    },
    /// Both have the key, with different values.
    Updated {
        /// Key that matches the two rows.
        key: Vec<Field>,
        /// Differing columns.
        columns: Vec<FieldChange>,
    },
    /// Only the template has the row.
    Deleted {
        /// Values of all columns.
        values: Vec<Field>,
    },
}

/// Column of a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Field {
    /// Name of the column.
    pub column: String,
    /// Value in the server's text format.
    pub value: CellValue,
}

/// Differing column of an updated row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FieldChange {
    /// Name of the column.
    pub column: String,
    /// Value in the template.
    pub old: CellValue,
    /// Value in the database.
    pub new: CellValue,
}

/// Value as text: `null`, a string, or a part of a long one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CellValue {
    /// NULL.
    Null,
    /// Whole text.
    Whole(String),
    /// Part of a long text.
    Part {
        /// Text of the part.
        part: String,
        /// Characters or bytes before the part.
        from: usize,
        /// Characters or bytes of the whole value.
        length: usize,
        /// Whether the numbers count bytes: the value is a `bytea`, and the part has its hexadecimal digits.
        bytes: bool,
    },
}

/// Part of a database that pgfresh could not compare.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotCompared {
    /// Name of the table with its schema, quoted as SQL needs it; or "definitions" or "sequences".
    pub name: String,
    /// Reason, on one line.
    pub reason: String,
}

impl DatabaseDiff {
    /// Whether the comparison found no difference.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.schema.is_empty()
            && self.sequences.is_empty()
            && self.tables.is_empty()
            && self.tables_left_out.tables == 0
    }
}
