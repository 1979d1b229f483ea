//! Production's statistics: sizes of relations and statistics of their columns.
//!
//! The file format is these types as JSON. Objects are matched by name, never by number, because a column's number
//! differs after columns were dropped.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::names::{full_name, short_name};

/// Version of the file format.
pub(crate) const FORMAT: u32 = 1;

/// Size of a page in bytes. The import and the scratch copy refuse servers with another one.
pub(crate) const PAGE_SIZE: u32 = 8192;

/// Statistics of one database.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statistics {
    /// Version of the file format. 1 at present.
    pub format: u32,
    /// Version of the server in its own numbers, such as 150004.
    pub server_version: u32,
    /// When the statistics were read, in seconds since 1970. 0 if the file does not say it.
    pub taken: u64,
    /// Settings that the planner reads, such as `random_page_cost`, as `SHOW` prints them.
    pub settings: BTreeMap<String, String>,
    /// Tables, partitioned tables, materialized views and indexes.
    pub relations: Vec<RelationStatistics>,
    /// Extended statistics (`CREATE STATISTICS`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extended: Vec<ExtendedStatistics>,
}

impl Statistics {
    /// Puts relations and columns into the order of their names.
    pub(crate) fn sort(&mut self) {
        self.relations.sort_by_cached_key(RelationStatistics::relation_name);
        for relation in &mut self.relations {
            relation.parents.sort();
            relation
                .columns
                .sort_by(|a, b| (&a.column, a.number, a.inherited).cmp(&(&b.column, b.number, b.inherited)));
        }
        self.extended
            .sort_by(|a, b| (&a.schema, &a.name, a.inherited).cmp(&(&b.schema, &b.name, b.inherited)));
    }
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
    /// Tables that this one inherits from, or the partitioned table of a partition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<RelationName>,
    /// Generated columns, each with the columns that its expression reads.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub generated: BTreeMap<String, Vec<String>>,
    /// Height of a B-tree, `btm_fastlevel`, if it could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub height: Option<u32>,
    /// Statistics of columns, or of the expressions of an index.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<ColumnStatistics>,
}

impl RelationStatistics {
    /// Returns the name with its schema.
    #[must_use]
    pub fn relation_name(&self) -> RelationName {
        RelationName { schema: self.schema.clone(), name: self.name.clone() }
    }

    /// Returns the number of rows as the planner estimates it: the density at the last ANALYZE, times today's pages. 0
    /// without an ANALYZE.
    #[must_use]
    pub fn estimated_rows(&self) -> f64 {
        scaled(self.rows, self.pages, self.analyzed_pages)
    }
}

/// Returns the number of rows of a table that had `rows` in `analyzed_pages` and has `pages` today.
pub(crate) fn scaled(rows: f64, pages: u32, analyzed_pages: u32) -> f64 {
    if rows <= 0.0 || analyzed_pages == 0 {
        return 0.0;
    }
    (rows / f64::from(analyzed_pages) * f64::from(pages)).round()
}

/// Name of a relation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelationName {
    /// Name of the schema.
    pub schema: String,
    /// Name of the relation.
    pub name: String,
}

impl RelationName {
    /// Returns the name with its schema as it stands in SQL.
    #[must_use]
    pub fn full_name(&self) -> String {
        full_name(&self.schema, &self.name)
    }
}

impl fmt::Display for RelationName {
    /// Writes the name as it stands in SQL, without the schema if it is `public`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&short_name(&self.schema, &self.name))
    }
}

/// Kind of a relation that has statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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
    /// Any of these kinds: the output of `pg_dump` does not say which.
    Unknown,
}

impl RelationKind {
    /// Returns true for an index, partitioned or not.
    #[must_use]
    pub fn is_index(self) -> bool {
        matches!(self, Self::Index | Self::PartitionedIndex)
    }
}

/// Statistics of one column, as in `pg_stats`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnStatistics {
    /// Name of the table's column. The index's column, such as `lower`, if this is an expression of an index. The
    /// expression itself, if it belongs to extended statistics. Empty if the statistics have only the `number`.
    pub column: String,
    /// Position of an index's column, from 1. Only for the output of `pg_dump`, which does not name these columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<i16>,
    /// Type of the column in SQL, such as `character varying(20)`, with the schema if it is not in `pg_catalog`. Empty
    /// if it is unknown: in the output of `pg_dump`, and for expressions of extended statistics.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub type_name: String,
    /// Whether tokens replace the values, or values are left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub redacted: bool,
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

/// Extended statistics of one object of `CREATE STATISTICS`. Expressions stand for themselves wherever a column's name
/// is expected, in the words of `pg_get_statisticsobjdef_expressions`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExtendedStatistics {
    /// Name of the schema.
    pub schema: String,
    /// Name of the object.
    pub name: String,
    /// Table of the object.
    pub table: RelationName,
    /// Whether the statistics include child tables.
    pub inherited: bool,
    /// Columns of the object, in the order of the table's columns, then its expressions in their order. The values of
    /// `common` have this order.
    pub columns: Vec<String>,
    /// Number of distinct combinations, `pg_stats_ext.n_distinct`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub distinct: Vec<DistinctCombinations>,
    /// Functional dependencies, `pg_stats_ext.dependencies`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<Dependency>,
    /// Most common combinations of values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub common: Vec<CommonCombination>,
    /// Statistics of the object's expressions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expressions: Vec<ColumnStatistics>,
}

/// Number of distinct combinations of some columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DistinctCombinations {
    /// Two columns or more.
    pub columns: Vec<String>,
    /// Number of distinct combinations of their values.
    pub count: f64,
}

/// Degree to which some columns determine another one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dependency {
    /// Columns that determine.
    pub columns: Vec<String>,
    /// Column that they determine.
    pub determines: String,
    /// Fraction of the rows that agree, from 0 to 1.
    pub degree: f64,
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
