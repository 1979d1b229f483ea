//! Determines the production table sizes: from production statistics, from row counts that the user gives, or from
//! both.

mod table_rows;
mod template;

use std::collections::{BTreeMap, BTreeSet};

use plans::{RelationKind, RelationName, RelationStatistics, Statistics};
use report::{Quantity, Unit, as_f64};

pub use self::table_rows::{ParseTableRowsError, TableRows};
use self::template::TemplateIndex;
pub use self::template::TemplateTables;
use crate::RelationSize;

/// Page size in bytes.
pub(crate) const PAGE: f64 = 8192.0;
/// Usable bytes in a table page.
const USABLE: f64 = PAGE - 24.0;
/// Bytes that a row takes in addition to its values: header and line pointer.
const ROW: f64 = 28.0;
/// Bytes that an index entry takes in addition to its values: header and line pointer.
const ENTRY: f64 = 12.0;
/// Usable bytes in a leaf page, which CREATE INDEX fills to 90 %.
const LEAF: f64 = 0.9 * (PAGE - 40.0);
/// Minimum number of template rows for scaling a table's files to production.
const SCALABLE_ROWS: f64 = 1000.0;
/// Minimum number of template rows for scaling an index to production. The first pages of an index are almost empty, so
/// a small index says little.
const SCALABLE_INDEX_ROWS: f64 = 10_000.0;
/// Factor by which a table may be smaller or larger than the estimate from its column types.
const ESTIMATE_SPREAD: f64 = 1.5;
/// Factor by which a table may be smaller or larger than the estimate from scaled files.
const SCALED_SPREAD: f64 = 1.1;
/// Maximum number of tables that a sentence names.
const NAMED: usize = 3;

/// Reason why the given sizes can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizesError {
    /// The user gave a row count for a table that doesn't exist in the template.
    #[error("the template has no table {name}")]
    UnknownTable {
        /// The name that the user wrote.
        name: String,
        /// Tables with similar names. If no name is similar, some other tables.
        near: Vec<String>,
    },
    /// Tables in several schemas have the given name.
    #[error("several schemas have a table {name}")]
    Ambiguous {
        /// The name that the user wrote.
        name: String,
        /// The matching names, with their schemas.
        tables: Vec<String>,
    },
    /// The user gave two row counts for a table.
    #[error("the rows of {0} are given twice")]
    Twice(String),
}

impl SizesError {
    /// Returns advice for the user. `None` if pgfresh has no advice.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownTable { near, .. } if near.is_empty() => None,
            Self::UnknownTable { near, .. } => Some(format!("Did you mean {}?", near.join(" or "))),
            Self::Ambiguous { tables, .. } => Some(format!("Write {}.", tables.join(" or "))),
            Self::Twice(_) => None,
        }
    }
}

/// Sizes of the production tables and indexes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Production {
    /// Tables and materialized views of the template, keyed by name. A partitioned table has no files, so the map
    /// contains only its partitions.
    tables: BTreeMap<RelationName, ProductionTable>,
    /// Partitions with rows, keyed by partitioned table.
    leaves: BTreeMap<RelationName, Vec<RelationName>>,
    assumptions: Vec<String>,
}

/// Size of a table in production.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ProductionTable {
    /// Number of rows. `None` if unknown.
    pub(crate) rows: Option<f64>,
    /// Number of pages.
    pub(crate) pages: f64,
    /// Number of pages of the TOAST table.
    pub(crate) toast_pages: f64,
    /// Factor by which the real number of pages may be smaller or larger.
    pub(crate) spread: f64,
    /// Number of rows in the template.
    pub(crate) template_rows: f64,
    /// Average column widths in bytes, keyed by column name.
    pub(crate) columns: BTreeMap<String, f64>,
    /// The table's indexes, keyed by name.
    pub(crate) indexes: BTreeMap<RelationName, ProductionIndex>,
}

/// An index in production.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ProductionIndex {
    /// Number of pages.
    pub(crate) pages: f64,
    /// Access method, such as `btree`.
    pub(crate) method: String,
    /// The first column. `None` if it is an expression.
    pub(crate) leading: Option<String>,
    /// Sum of the columns' average widths, in bytes.
    pub(crate) width: f64,
}

impl Production {
    /// Combines the template's tables with production statistics and with the row counts that the user gives. The
    /// user's row counts override those of the statistics. `sizes` are the template's sizes.
    ///
    /// # Errors
    ///
    /// Returns an error if a name in `rows` doesn't match exactly one table of the template.
    pub fn new(
        template: &TemplateTables,
        sizes: &[RelationSize],
        statistics: Option<&Statistics>,
        rows: &[TableRows],
    ) -> Result<Self, SizesError> {
        let given = Given::find(&tables(template, sizes), rows)?;
        let empty = Vec::new();
        let relations = statistics.map_or(&empty, |statistics| &statistics.relations);
        let sources = Sources {
            template,
            sizes: sizes.iter().map(|size| (size.relation.clone(), size)).collect(),
            statistics: relations.iter().map(|relation| (relation.relation_name(), relation)).collect(),
            given,
        };
        let mut production = Self { leaves: template.leaves.clone(), ..Self::default() };
        let mut notes = Notes::default();
        for size in sizes {
            if matches!(size.kind, RelationKind::Table | RelationKind::MaterializedView) {
                let table = sources.table(size, &mut notes);
                production.tables.insert(size.relation.clone(), table);
            }
        }
        production.add_missing_partitions(&sources);
        production.assumptions = notes.sentences(statistics.is_some());
        Ok(production)
    }

    /// Returns sentences that explain where the sizes come from.
    #[must_use]
    pub fn assumptions(&self) -> &[String] {
        &self.assumptions
    }

    /// Returns a table's number of rows and size in bytes in production. The size includes the TOAST table, but not the
    /// indexes. For a partitioned table, returns the sums over its partitions. `None` if a part is unknown.
    #[must_use]
    pub fn size_of(&self, relation: &RelationName) -> Option<(f64, f64)> {
        let parts = self.leaves.get(relation).map_or(std::slice::from_ref(relation), Vec::as_slice);
        let (mut rows, mut pages) = (0.0, 0.0);
        for part in parts {
            let table = self.tables.get(part)?;
            rows += table.rows?;
            pages += table.pages + table.toast_pages;
        }
        Some((rows, pages * PAGE))
    }

    /// Returns the table named `relation`. `None` if the template doesn't contain it.
    pub(crate) fn table(&self, relation: &RelationName) -> Option<&ProductionTable> {
        self.tables.get(relation)
    }

    /// Returns the tables that a name in SQL refers to: a table itself, or all partitions of a partitioned table.
    pub(crate) fn named(&self, schema: Option<&str>, name: &str) -> Vec<&RelationName> {
        let is_meant = |relation: &RelationName| {
            relation.name == name && schema.is_none_or(|schema| relation.schema == schema)
        };
        if let Some((_, leaves)) = self.leaves.iter().find(|(table, _)| is_meant(table)) {
            return leaves.iter().collect();
        }
        let mut found = self.tables.keys().filter(|relation| is_meant(relation));
        let first = found.clone().find(|relation| relation.schema == "public");
        first.or_else(|| found.next()).into_iter().collect()
    }

    /// Distributes the rows of partitions that exist only in production among the template's partitions of the table.
    fn add_missing_partitions(&mut self, sources: &Sources<'_>) {
        for (table, leaves) in &self.leaves.clone() {
            if sources.given.rows.contains_key(table) || leaves.is_empty() {
                continue;
            }
            let missing = sources.statistics.iter().filter(|(name, relation)| {
                relation.parents.contains(table)
                    && matches!(relation.kind, RelationKind::Table | RelationKind::Unknown)
                    && !self.tables.contains_key(name)
            });
            let (mut rows, mut pages) = (0.0, 0.0);
            for (_, relation) in missing {
                rows += relation.estimated_rows();
                pages += f64::from(relation.pages);
            }
            if rows == 0.0 {
                continue;
            }
            let share = 1.0 / as_f64(leaves.len());
            for leaf in leaves {
                let Some(leaf) = self.tables.get_mut(leaf) else { continue };
                let before = leaf.rows.unwrap_or(0.0);
                let factor = if before > 0.0 { (before + rows * share) / before } else { 1.0 };
                leaf.rows = Some(before + rows * share);
                leaf.pages = if before > 0.0 { leaf.pages * factor } else { pages * share };
                leaf.indexes.values_mut().for_each(|index| index.pages *= factor);
            }
        }
    }
}

/// Returns the tables and materialized views of the template.
fn tables<'a>(template: &'a TemplateTables, sizes: &'a [RelationSize]) -> BTreeSet<&'a RelationName> {
    let is_table = |kind| {
        matches!(kind, RelationKind::Table | RelationKind::MaterializedView | RelationKind::PartitionedTable)
    };
    let here = sizes.iter().filter(|size| is_table(size.kind)).map(|size| &size.relation);
    here.chain(template.columns.keys()).chain(template.leaves.keys()).collect()
}

impl TemplateTables {
    /// Checks that each name in `rows` matches exactly one table.
    ///
    /// # Errors
    ///
    /// Returns an error if a name doesn't match a table of the template, or matches several.
    pub fn expect(&self, rows: &[TableRows]) -> Result<(), SizesError> {
        Given::find(&tables(self, &[]), rows).map(|_| ())
    }
}

/// Row counts that the user gave, keyed by template table.
struct Given {
    rows: BTreeMap<RelationName, f64>,
}

impl Given {
    fn find(tables: &BTreeSet<&RelationName>, rows: &[TableRows]) -> Result<Self, SizesError> {
        let mut found = BTreeMap::new();
        for given in rows {
            let matching: Vec<_> = tables.iter().filter(|table| given.names(table)).collect();
            let table = match &matching[..] {
                [table] => (**table).clone(),
                [] => return Err(unknown(given, tables)),
                several => {
                    let tables = several.iter().map(|table| format!("{}.{}", table.schema, table.name));
                    return Err(SizesError::Ambiguous { name: given.to_string(), tables: tables.collect() });
                }
            };
            if found.insert(table, given.rows).is_some() {
                return Err(SizesError::Twice(given.to_string()));
            }
        }
        Ok(Self { rows: found })
    }

    /// Returns the row count of a table. A partition that the user didn't give a count for gets a part of the
    /// partitioned table's count.
    fn rows(&self, table: &RelationName, template: &TemplateTables) -> Option<f64> {
        let own = self.rows.get(table).copied();
        own.or_else(|| {
            let above = |(parent, leaves): (_, &Vec<RelationName>)| {
                let rows = self.rows.get(parent).filter(|_| leaves.contains(table))?;
                let others = leaves.iter().filter(|leaf| !self.rows.contains_key(leaf)).count();
                let named: f64 = leaves.iter().filter_map(|leaf| self.rows.get(leaf)).sum();
                Some((rows - named).max(0.0) / as_f64(others.max(1)))
            };
            template.leaves.iter().find_map(above)
        })
    }
}

fn unknown(given: &TableRows, tables: &BTreeSet<&RelationName>) -> SizesError {
    let mut near: Vec<_> = tables
        .iter()
        .map(|table| (strsim::jaro_winkler(&table.name, &given.name), table))
        .filter(|(likeness, _)| *likeness > 0.7)
        .collect();
    near.sort_by(|(a, x), (b, y)| b.total_cmp(a).then_with(|| x.cmp(y)));
    let near = near.into_iter().take(NAMED).map(|(_, table)| table.to_string());
    SizesError::UnknownTable { name: given.to_string(), near: near.collect() }
}

/// Sources that determine the table sizes.
struct Sources<'a> {
    template: &'a TemplateTables,
    sizes: BTreeMap<RelationName, &'a RelationSize>,
    statistics: BTreeMap<RelationName, &'a RelationStatistics>,
    given: Given,
}

impl Sources<'_> {
    /// Determines the production size of a table that has files.
    fn table(&self, here: &RelationSize, notes: &mut Notes) -> ProductionTable {
        let name = &here.relation;
        let statistics = self.statistics.get(name).copied();
        let columns = self.columns(name, statistics);
        let estimated = estimated_pages(1.0, &columns);
        // If a table was never analyzed, its statistics contain pages but not rows, so estimate the rows from the
        // pages.
        let analyzed = statistics.map(|statistics| {
            let rows = statistics.estimated_rows();
            if rows > 0.0 { rows } else { (f64::from(statistics.pages) / estimated).round() }
        });
        let given = self.given.rows(name, self.template);
        let rows = given.or(analyzed);
        let mut table = ProductionTable {
            rows,
            template_rows: here.rows,
            columns,
            spread: 1.0,
            ..ProductionTable::default()
        };
        let Some(rows) = rows else { return table };
        let growth = if here.rows > 0.0 { rows / here.rows } else { 0.0 };
        let is_scalable = here.rows >= SCALABLE_ROWS;
        match (statistics, analyzed.filter(|rows| *rows > 0.0)) {
            (Some(statistics), Some(analyzed)) => table.pages = f64::from(statistics.pages) * rows / analyzed,
            _ if is_scalable => {
                (table.pages, table.spread) = (as_f64(here.pages) * growth, SCALED_SPREAD);
                notes.scaled.push(name.clone());
            }
            _ => {
                (table.pages, table.spread) = (rows * estimated, ESTIMATE_SPREAD);
                notes.estimated.push((name.clone(), table.pages * PAGE));
            }
        }
        if is_scalable {
            let part = as_f64(here.toast_pages) / as_f64(here.pages.max(1));
            table.toast_pages = table.pages * part;
        }
        table.indexes = self.indexes(name, &table, analyzed);
        table
    }

    /// Returns the widths of a table's columns, from the production statistics if these contain them.
    fn columns(
        &self,
        table: &RelationName,
        statistics: Option<&RelationStatistics>,
    ) -> BTreeMap<String, f64> {
        let mut columns = self.template.columns.get(table).cloned().unwrap_or_default();
        for column in statistics.iter().flat_map(|statistics| &statistics.columns) {
            if let Some(width) = columns.get_mut(&column.column).filter(|_| column.width > 0) {
                *width = f64::from(column.width);
            }
        }
        columns
    }

    /// Returns a table's indexes. `analyzed` is the table's number of rows in the statistics.
    fn indexes(
        &self,
        name: &RelationName,
        table: &ProductionTable,
        analyzed: Option<f64>,
    ) -> BTreeMap<RelationName, ProductionIndex> {
        let rows = table.rows.unwrap_or(0.0);
        let of_table = self.template.indexes.iter();
        let of_table =
            of_table.filter(|(index, described)| index.schema == name.schema && described.table == name.name);
        let size = |(index, described): (&RelationName, &TemplateIndex)| {
            let widths = described
                .columns
                .iter()
                .map(|(column, width)| table.columns.get(column).copied().unwrap_or(*width));
            let in_template = self.sizes.get(index).filter(|_| table.template_rows >= SCALABLE_INDEX_ROWS);
            let in_statistics = self.statistics.get(index).zip(analyzed.filter(|rows| *rows > 0.0));
            let width = widths.sum();
            let pages = match (in_statistics, in_template) {
                (Some((statistics, analyzed)), _) => f64::from(statistics.pages) * rows / analyzed,
                (None, Some(size)) => as_f64(size.pages) * rows / table.template_rows,
                (None, None) => entry_pages(rows, width),
            };
            let leading = described.columns.first().map(|(column, _)| column.clone());
            let leading = leading.filter(|column| !column.is_empty());
            (index.clone(), ProductionIndex { pages, method: described.method.clone(), leading, width })
        };
        of_table.map(size).collect()
    }
}

/// Estimates the number of pages that `rows` rows with these columns take.
fn estimated_pages(rows: f64, columns: &BTreeMap<String, f64>) -> f64 {
    let width: f64 = columns.values().sum();
    rows * (ROW + aligned(width)) / USABLE
}

/// Estimates the number of pages of a B-tree whose keys are `width` bytes wide.
pub(crate) fn entry_pages(rows: f64, width: f64) -> f64 {
    rows * (ENTRY + aligned(width)) / LEAF
}

/// Rounds a size up to a multiple of 8, because PostgreSQL aligns rows.
fn aligned(size: f64) -> f64 {
    (size / 8.0).ceil() * 8.0
}

/// Collects the tables whose sizes rest on an assumption.
#[derive(Default)]
struct Notes {
    scaled: Vec<RelationName>,
    estimated: Vec<(RelationName, f64)>,
}

impl Notes {
    fn sentences(self, has_statistics: bool) -> Vec<String> {
        let mut sentences = Vec::new();
        if has_statistics {
            sentences.push("Sizes come from production's statistics.".to_owned());
        }
        if !self.scaled.is_empty() {
            let names = listed(&self.scaled.iter().map(ToString::to_string).collect::<Vec<_>>());
            sentences.push(format!("Files of {names} grow in proportion to the rows."));
        }
        if !self.estimated.is_empty() {
            let sized = self
                .estimated
                .iter()
                .map(|(name, bytes)| format!("{name} ({})", Quantity::new(bytes.round(), Unit::Bytes)));
            let names = listed(&sized.collect::<Vec<_>>());
            sentences.push(format!(
                "The template has fewer than 1,000 rows of {names}, so the types of the columns give the size."
            ));
        }
        sentences
    }
}

/// Returns the first names of a list, for use in a sentence.
pub(crate) fn listed(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMED);
    let first = names[..names.len() - more].join(", ");
    if more > 0 { format!("{first} and {more} more") } else { first }
}

#[cfg(test)]
mod tests;
