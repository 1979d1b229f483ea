//! What a comparison found, as data.

use serde::{Deserialize, Serialize};

/// What a database has that its template has not. All of it is bounded; what was left out is counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DatabaseDiff {
    /// Definitions that were created, dropped or changed.
    pub schema: Vec<ObjectChange>,
    /// How many more there are.
    pub schema_left_out: usize,
    /// Sequences that stand elsewhere.
    pub sequences: Vec<SequenceChange>,
    /// How many more there are.
    pub sequences_left_out: usize,
    /// Tables whose rows differ, most changed first.
    pub tables: Vec<TableDiff>,
    /// Those that are not among them.
    pub tables_left_out: LeftOut,
    /// What could not be compared, and why.
    pub not_compared: Vec<NotCompared>,
}

/// A definition that differs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ObjectChange {
    /// "table", "column", "index".
    pub kind: String,
    /// As SQL wants it, with its schema.
    pub name: String,
    /// What became of it.
    pub change: What,
    /// The template's definition, where it says something that people read.
    pub old: Option<String>,
    /// The database's.
    pub new: Option<String>,
    /// Columns of catalogs that differ and that the definition does not have.
    #[serde(default)]
    pub columns: Vec<FieldChange>,
}

/// What became of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// The template has it not.
    Created,
    /// Both have it, and it differs.
    Changed,
    /// The database has it no more.
    Dropped,
}

/// A sequence that stands elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequenceChange {
    /// As SQL wants it, with its schema.
    pub name: String,
    /// Where the template's stands.
    pub old: SequenceValue,
    /// Where the database's stands.
    pub new: SequenceValue,
}

/// Where a sequence stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequenceValue {
    /// Its `last_value`.
    pub last_value: i64,
    /// Whether that was handed out already.
    pub is_called: bool,
}

/// A table whose rows differ.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TableDiff {
    /// As SQL wants it, with its schema.
    pub table: String,
    /// The columns by which rows were matched. Without any, whole rows were compared, and none is updated.
    pub key: Vec<String>,
    /// All rows that differ.
    #[serde(flatten)]
    pub counts: RowCounts,
    /// Some of them: as many as were asked for, and as fit.
    pub rows: Vec<RowChange>,
    /// The others.
    pub rows_left_out: RowCounts,
}

/// Rows by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowCounts {
    /// The template has them not.
    pub inserted: u64,
    /// Both have the key, and other values.
    pub updated: u64,
    /// The database has them no more.
    pub deleted: u64,
}

impl RowCounts {
    /// All together.
    #[must_use]
    pub fn total(self) -> u64 {
        self.inserted + self.updated + self.deleted
    }
}

/// Tables that are counted, and not shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// How many.
    pub tables: usize,
    /// Their rows.
    #[serde(flatten)]
    pub counts: RowCounts,
}

/// A row that differs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum RowChange {
    /// The template has it not.
    Inserted {
        /// All its columns.
        values: Vec<Field>,
    },
    /// Both have its key.
    Updated {
        /// What it was matched by.
        key: Vec<Field>,
        /// The columns that differ.
        columns: Vec<FieldChange>,
    },
    /// The database has it no more.
    Deleted {
        /// All its columns.
        values: Vec<Field>,
    },
}

/// A column of a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Field {
    /// Its name.
    pub column: String,
    /// As the server writes it.
    pub value: CellValue,
}

/// A column of an updated row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FieldChange {
    /// Its name.
    pub column: String,
    /// In the template.
    pub old: CellValue,
    /// In the database.
    pub new: CellValue,
}

/// A value as text: `null`, a string, or a part of one that is too long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CellValue {
    /// NULL.
    Null,
    /// All of it.
    Whole(String),
    /// A part of it.
    Part {
        /// The part.
        part: String,
        /// Characters or bytes before it.
        from: usize,
        /// Characters or bytes of the whole.
        length: usize,
        /// Whether bytes are counted: of `bytea`, in hexadecimal digits.
        bytes: bool,
    },
}

/// Something that could not be compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotCompared {
    /// As SQL wants it, with its schema.
    pub name: String,
    /// Why not, on one line.
    pub reason: String,
}

impl DatabaseDiff {
    /// Whether nothing differs in what was compared.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.schema.is_empty()
            && self.sequences.is_empty()
            && self.tables.is_empty()
            && self.tables_left_out.tables == 0
    }
}
