//! Production's statistics: sizes of relations and the contents of their columns.
//!
//! The file format is these types as JSON. Objects are matched by name, never by number, because a column's number
//! differs after columns were dropped.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Statistics of one database.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statistics {
    /// Version of the file format. 1 at present.
    pub format: u32,
    /// Version of the server in its own numbers, such as 150004.
    pub server_version: u32,
    /// When the statistics were read, in seconds since 1970.
    pub taken: u64,
    /// Settings that the planner reads, such as `random_page_cost`, as `SHOW` prints them.
    pub settings: BTreeMap<String, String>,
    /// Tables, partitioned tables, materialized views and indexes.
    pub relations: Vec<RelationStatistics>,
    /// Extended statistics (`CREATE STATISTICS`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extended: Vec<ExtendedStatistics>,
}

/// Size and columns of one relation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelationStatistics {
    /// Name of the schema.
    pub schema: String,
    /// Name of the relation.
    pub name: String,
    /// Kind of the relation.
    pub kind: RelationKind,
    /// Size in pages of 8 KiB: the file's size if it could be read, otherwise `relpages`.
    pub pages: u32,
    /// Pages at the last VACUUM or ANALYZE, `pg_class.relpages`.
    pub analyzed_pages: u32,
    /// Rows at the last VACUUM or ANALYZE, `pg_class.reltuples`. -1 if there was none.
    pub rows: f64,
    /// All-visible pages, `pg_class.relallvisible`.
    pub all_visible: u32,
    /// Table of an index. It has the schema of the index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// `pg_get_indexdef` of an index. Two indexes with the same definition but for their names are the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<String>,
    /// Height of a B-tree, `btm_fastlevel`, if it could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub height: Option<u32>,
    /// Statistics of columns, or of the expressions of an index.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<ColumnStatistics>,
}

/// Kind of a relation that has statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RelationKind {
    /// An ordinary table or a partition.
    Table,
    /// A partitioned table, which has no file.
    PartitionedTable,
    /// A materialized view.
    MaterializedView,
    /// A foreign table, which has no file.
    ForeignTable,
    /// An index.
    Index,
    /// An index on a partitioned table, which has no file.
    PartitionedIndex,
}

/// Statistics of one column, as in `pg_stats`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnStatistics {
    /// Name of the table's column. The index's column, such as `lower`, if this is an expression of an index.
    pub column: String,
    /// Type of the column in SQL, such as `character varying(20)`, with the schema if it is not in `pg_catalog`.
    pub type_name: String,
    /// Whether the statistics include child tables.
    pub inherited: bool,
    /// Fraction of NULLs, from 0 to 1.
    pub null_fraction: f32,
    /// Average width in bytes.
    pub width: i32,
    /// Number of distinct values, or minus their number divided by the number of rows.
    pub distinct: f32,
    /// Further statistics, at most five.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<Slot>,
}

/// One slot of `pg_statistic`. The meaning of numbers and values depends on the kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slot {
    /// PostgreSQL's number of the kind: 1 most common values, 2 histogram bounds, 3 correlation, 4 most common
    /// elements, 5 element counts, 6 range lengths, 7 range bounds.
    pub kind: i16,
    /// Frequencies or counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numbers: Option<Vec<f32>>,
    /// Values as PostgreSQL prints them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<Vec<String>>,
}

/// Extended statistics of one object of `CREATE STATISTICS`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExtendedStatistics {
    /// Name of the schema.
    pub schema: String,
    /// Name of the object.
    pub name: String,
    /// Whether the statistics include child tables.
    pub inherited: bool,
    /// `pg_stats_ext.n_distinct`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distinct: Option<String>,
    /// `pg_stats_ext.dependencies`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dependencies: Option<String>,
    /// Most common combinations of values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub common: Vec<CommonCombination>,
    /// Statistics of the object's expressions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expressions: Vec<ColumnStatistics>,
}

/// A combination of values of an extended statistics object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommonCombination {
    /// Values in the object's order. `None` for NULL.
    pub values: Vec<Option<String>>,
    /// Fraction of the rows.
    pub frequency: f64,
    /// Fraction of the rows if the columns were independent.
    pub base_frequency: f64,
}
