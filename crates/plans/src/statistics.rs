//! Holds production's statistics: relation sizes and column statistics.
//!
//! The file format is the JSON form of these types. Objects are matched by name and never by number, because dropped
//! columns change the numbers of the following columns.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::names::{full_name, short_name};

/// Version of the file format.
pub(crate) const FORMAT: u32 = 1;

/// Page size in bytes. The import and the scratch copy reject servers with a different page size.
pub(crate) const PAGE_SIZE: u32 = 8192;

/// Statistics of one database.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statistics {
    /// Version of the file format, currently 1.
    pub format: u32,
    /// Server version as PostgreSQL numbers it, such as 150004.
    pub server_version: u32,
    /// When the statistics were read, in seconds since 1970. 0 if the file doesn't contain the time.
    pub taken: u64,
    /// Settings that influence the planner, such as `random_page_cost`, as `SHOW` prints them.
    pub settings: BTreeMap<String, String>,
    /// Tables, partitioned tables, materialized views and indexes.
    pub relations: Vec<RelationStatistics>,
    /// Extended statistics (`CREATE STATISTICS`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extended: Vec<ExtendedStatistics>,
}

impl Statistics {
    /// Sorts relations and columns by name.
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
    /// Size in pages of 8 KiB. This is the file's size if it could be read, otherwise `relpages`.
    pub pages: u32,
    /// Number of pages at the last VACUUM or ANALYZE, `pg_class.relpages`.
    pub analyzed_pages: u32,
    /// Number of rows at the last VACUUM or ANALYZE, `pg_class.reltuples`. -1 if there was none.
    pub rows: f64,
    /// Number of all-visible pages, `pg_class.relallvisible`.
    pub all_visible: u32,
    /// Name of the table that an index belongs to. The table has the same schema as the index. `None` for other
    /// relations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// Definition of an index, as `pg_get_indexdef` prints it. Two indexes are the same if their definitions differ
    /// only in the index name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<String>,
    /// Tables that this table inherits from. For a partition, its partitioned table.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<RelationName>,
    /// Generated columns, each with the columns that its expression reads.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub generated: BTreeMap<String, Vec<String>>,
    /// Height of a B-tree, `btm_fastlevel`. `None` if it couldn't be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub height: Option<u32>,
    /// Statistics of columns or, for an index, of its expressions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<ColumnStatistics>,
}

impl RelationStatistics {
    /// Returns the relation's name with its schema.
    #[must_use]
    pub fn relation_name(&self) -> RelationName {
        RelationName { schema: self.schema.clone(), name: self.name.clone() }
    }

    /// Returns the row count as the planner estimates it: the row density at the last ANALYZE, multiplied by the
    /// current number of pages. 0 if there was no ANALYZE.
    #[must_use]
    pub fn estimated_rows(&self) -> f64 {
        scaled(self.rows, self.pages, self.analyzed_pages)
    }
}

/// Returns the current row count of a table that had `rows` rows in `analyzed_pages` pages and now has `pages` pages.
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
    /// Returns the name in SQL notation, always with the schema.
    #[must_use]
    pub fn full_name(&self) -> String {
        full_name(&self.schema, &self.name)
    }
}

impl fmt::Display for RelationName {
    /// Writes the name in SQL notation. Omits the schema if it is `public`.
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
    /// The kind isn't known, because the output of `pg_dump` doesn't contain it.
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
    /// Name of the table's column. For an index expression, the index column's name, such as `lower`. For extended
    /// statistics, the expression itself. Empty if the statistics only have a `number`.
    pub column: String,
    /// Position of an index column, from 1. Only used for the output of `pg_dump`, which doesn't name index columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<i16>,
    /// SQL type of the column, such as `character varying(20)`. Includes the schema unless it is `pg_catalog`. Empty if
    /// unknown, that is, in the output of `pg_dump` and for expressions of extended statistics.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub type_name: String,
    /// Whether values were replaced with tokens or removed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub redacted: bool,
    /// Whether the statistics include child tables.
    pub inherited: bool,
    /// Fraction of NULLs, from 0 to 1.
    pub null_fraction: f32,
    /// Average width in bytes.
    pub width: i32,
    /// Number of distinct values or, if negative, minus their ratio to the row count.
    pub distinct: f32,
    /// Further statistics, at most five.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<Slot>,
}

/// One slot of `pg_statistic`. The kind determines what numbers and values mean.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slot {
    /// PostgreSQL's number for the kind of slot: 1 most common values, 2 histogram bounds, 3 correlation, 4 most common
    /// elements, 5 element counts, 6 range lengths, 7 range bounds.
    pub kind: i16,
    /// Frequencies or counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numbers: Option<Vec<f32>>,
    /// Values as PostgreSQL prints them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<Vec<String>>,
}

/// Extended statistics from one object of `CREATE STATISTICS`. In place of a column name, fields may contain an
/// expression, as `pg_get_statisticsobjdef_expressions` prints it.
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
    /// Columns of the object in table order, followed by its expressions. The values in `common` have the same order.
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

/// Degree to which some columns determine another column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dependency {
    /// Columns that determine the other column.
    pub columns: Vec<String>,
    /// Column whose value depends on `columns`.
    pub determines: String,
    /// Fraction of the rows that follow the dependency, from 0 to 1.
    pub degree: f64,
}

/// A common combination of values in the columns of an extended statistics object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommonCombination {
    /// Values in the order of the object's columns. `None` for NULL.
    pub values: Vec<Option<String>>,
    /// Fraction of the rows that have this combination.
    pub frequency: f64,
    /// Fraction of the rows that would have this combination if the columns were independent.
    pub base_frequency: f64,
}
