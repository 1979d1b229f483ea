//! Drafts candidate indexes. Key columns with equality conditions come first, followed by a range or a sort order.

use std::collections::{BTreeMap, BTreeSet};

use super::access::Access;
use crate::definition::IndexDefinition;
use crate::numbers::distinct_values;
use crate::tables::Tables;
use crate::{CatalogTable, Limits};

/// Maximum number of ranges, and of sort orders, to draft candidates for in each access.
const VARIANTS: usize = 3;

/// Number of equality conditions in the suite for each table and key. Frequent keys come first in an index, so that one
/// index can serve several statements.
pub(crate) type Frequencies = BTreeMap<(usize, String), usize>;

/// Returns the candidates for an access. Omits those that an existing index covers.
pub(crate) fn drafts(
    access: &Access,
    tables: &Tables<'_>,
    frequencies: &Frequencies,
    limits: &Limits,
) -> Vec<IndexDefinition> {
    let table = tables.table(access.table);
    let mut maker = Maker { access, table, limits, frequencies, found: BTreeSet::new() };
    maker.restrictions();
    maker.joins();
    maker.special();
    let existing = existing(table);
    let is_new = |draft: &IndexDefinition| !existing.iter().any(|index| draft.is_part_of(index));
    maker.found.into_iter().filter(is_new).collect()
}

/// Returns the definitions of a table's indexes.
pub(crate) fn existing(table: &CatalogTable) -> Vec<IndexDefinition> {
    let parse =
        |index: &crate::CatalogIndex| IndexDefinition::parse(&table.schema, &table.name, &index.definition);
    table.indexes.iter().filter_map(parse).collect()
}

struct Maker<'a> {
    access: &'a Access,
    table: &'a CatalogTable,
    limits: &'a Limits,
    frequencies: &'a Frequencies,
    found: BTreeSet<IndexDefinition>,
}

impl Maker<'_> {
    fn restrictions(&mut self) {
        let equal = self.sorted(&self.access.equal);
        let access = self.access;
        self.add("btree", &equal);
        for key in &equal {
            self.add("btree", std::slice::from_ref(key));
        }
        let ranges = access.ranges.iter().chain(&access.prefixes).take(VARIANTS);
        let ranges: Vec<Vec<String>> = ranges.map(|key| vec![key.clone()]).collect();
        let orders: Vec<Vec<String>> = access.orders.iter().take(VARIANTS).cloned().collect();
        for last in ranges.iter().chain(&orders) {
            self.add("btree", last);
            self.add("btree", &joined(&equal, last));
            for condition in &access.fixed {
                self.add_partial(&joined(&without_fixed(&equal, condition), last), condition);
            }
        }
        for condition in &access.fixed {
            let others = without_fixed(&equal, condition);
            let is_alone = others.is_empty() && ranges.is_empty() && orders.is_empty();
            self.add_partial(if is_alone { &equal } else { &others }, condition);
        }
    }

    fn joins(&mut self) {
        let equal = self.sorted(&self.access.equal);
        for keys in self.access.joins.values() {
            let keys = self.sorted(keys);
            self.add("btree", &keys);
            self.add("btree", &joined(&keys, &equal));
            for key in &keys {
                self.add("btree", std::slice::from_ref(key));
            }
            for last in self.access.ranges.iter().take(VARIANTS) {
                self.add("btree", &joined(&keys, std::slice::from_ref(last)));
            }
            for order in self.access.orders.iter().take(VARIANTS) {
                self.add("btree", &joined(&keys, order));
            }
        }
    }

    fn special(&mut self) {
        for (method, key) in &self.access.contained {
            self.add(method, std::slice::from_ref(key));
        }
        for key in &self.access.alternatives {
            self.add("btree", std::slice::from_ref(key));
        }
    }

    /// Sorts keys by how often the suite uses them, then by their number of distinct values. The highest numbers come
    /// first.
    fn sorted(&self, keys: &BTreeSet<String>) -> Vec<String> {
        let mut keys: Vec<String> = keys.iter().cloned().collect();
        keys.sort_by(|left, right| {
            let frequency = |key: &String| self.frequencies.get(&(self.access.table, key.clone())).copied();
            let distinct = |key: &String| self.distinct(key);
            frequency(right)
                .cmp(&frequency(left))
                .then(distinct(right).total_cmp(&distinct(left)))
                .then(left.cmp(right))
        });
        keys
    }

    /// Returns a column's number of distinct values. For an expression, returns the row count.
    fn distinct(&self, key: &str) -> f64 {
        let rows = self.table.rows.max(1.0);
        let mut columns = self.table.columns.iter();
        let column = columns.find(|column| crate::names::sql_name(&column.name) == key);
        column.and_then(|column| column.distinct).map_or(rows, |distinct| distinct_values(distinct, rows))
    }

    fn add(&mut self, method: &str, keys: &[String]) {
        self.insert(method, keys, None);
    }

    fn add_partial(&mut self, keys: &[String], condition: &str) {
        self.insert("btree", keys, Some(condition.to_owned()));
    }

    fn insert(&mut self, method: &str, keys: &[String], predicate: Option<String>) {
        let keys: Vec<String> = keys.iter().take(self.limits.index_columns).cloned().collect();
        if keys.is_empty() {
            return;
        }
        self.found.insert(IndexDefinition {
            schema: self.table.schema.clone(),
            table: self.table.name.clone(),
            method: method.to_owned(),
            keys,
            included: Vec::new(),
            predicate,
        });
    }
}

/// Returns the keys without those that the condition of a partial index fixes. This also matters for sort orders,
/// because PostgreSQL doesn't recognize the row order of an index whose first key is restricted by `IS NULL`.
fn without_fixed(keys: &[String], condition: &str) -> Vec<String> {
    let is_fixed = |key: &&String| {
        [key.as_str(), &format!("(NOT {key})"), &format!("({key} IS NULL)")].contains(&condition)
    };
    keys.iter().filter(|key| !is_fixed(key)).cloned().collect()
}

/// Appends the keys of `second` to `first`, without duplicate columns.
fn joined(first: &[String], second: &[String]) -> Vec<String> {
    let column = |key: &String| key.split(' ').next().unwrap_or_default().to_owned();
    let known: BTreeSet<String> = first.iter().map(column).collect();
    first.iter().chain(second.iter().filter(|key| !known.contains(&column(key)))).cloned().collect()
}
