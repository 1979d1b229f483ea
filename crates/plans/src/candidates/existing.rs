//! Finds existing indexes that a new index makes redundant, or that the suite doesn't use.

use std::collections::BTreeSet;

use super::choose::{Created, notably_worse};
use crate::definition::IndexDefinition;
use crate::names::short_name;
use crate::tables::Tables;
use crate::workload::{CachedPlanner, Item};
use crate::{CandidateId, CatalogIndex, CatalogTable, Limits};

/// Returns existing indexes that a new index covers and whose removal makes no statement notably slower.
pub(super) fn superfluous(
    cached: &mut CachedPlanner<'_>,
    items: &[Item],
    created: &Created,
    tables: &Tables<'_>,
    set: &BTreeSet<CandidateId>,
    limits: &Limits,
) -> Vec<String> {
    let table = tables.table(created.table);
    let mut found = Vec::new();
    for index in table.indexes.iter().filter(|index| is_free(index)) {
        let definition = IndexDefinition::parse(&table.schema, &table.name, &index.definition);
        let is_part = |definition: IndexDefinition| {
            // A partial index is smaller than a full index, so it can be useful in addition.
            definition.predicate == created.definition.predicate && definition.is_part_of(&created.definition)
        };
        if !definition.is_some_and(is_part) {
            continue;
        }
        let hidden = [(index.schema.clone(), index.name.clone())];
        let needed = items.iter().enumerate().any(|(place, item)| {
            let Some(with) = cached.outcome((place, item), set, &[]) else { return false };
            if !with.indexes.contains(&index.name) && table.kind != crate::RelationKind::PartitionedTable {
                return false;
            }
            let without = cached.outcome((place, item), set, &hidden);
            without.is_none_or(|without| notably_worse(item, &with, &without, limits.index_loss, limits))
        });
        if !needed {
            found.push(short_name(&index.schema, &index.name));
        }
    }
    found
}

/// Returns indexes that no plan uses, on tables that the suite reads.
pub(crate) fn unused(used: &BTreeSet<String>, read: &BTreeSet<usize>, tables: &Tables<'_>) -> Vec<String> {
    let all = &tables.catalog().tables;
    // A partitioned index counts as used if one of its partitions is used.
    let mut used_parents: BTreeSet<(&str, &str)> = BTreeSet::new();
    for index in all.iter().flat_map(|table| &table.indexes).filter(|index| used.contains(&index.name)) {
        used_parents.extend(index.parent.iter().map(|(schema, name)| (schema.as_str(), name.as_str())));
    }
    // With several partition levels, a partition of an index can have partitions itself.
    let parents = all.iter().flat_map(|table| &table.indexes).filter(|index| index.parent.is_some());
    let parents: Vec<&CatalogIndex> = parents.collect();
    while let Some(parent) = parents.iter().find_map(|index| {
        let is_used = used_parents.contains(&(index.schema.as_str(), index.name.as_str()));
        let (schema, name) = index.parent.as_ref()?;
        let parent = (schema.as_str(), name.as_str());
        (is_used && !used_parents.contains(&parent)).then_some(parent)
    }) {
        used_parents.insert(parent);
    }
    let mut found = Vec::new();
    for table in read.iter().map(|place| tables.table(*place)) {
        for index in table.indexes.iter().filter(|index| is_free(index)) {
            let name = (index.schema.as_str(), index.name.as_str());
            let is_used = used.contains(&index.name) || used_parents.contains(&name);
            if !is_used && !serves_foreign_key(index, table) {
                found.push(short_name(&index.schema, &index.name));
            }
        }
    }
    found.sort();
    found
}

/// Returns true if only searches need the index: it isn't unique, no constraint needs it, and it isn't a partition of
/// another index.
fn is_free(index: &CatalogIndex) -> bool {
    !index.unique && !index.constraint && index.parent.is_none()
}

/// Returns true if the index begins with the columns of one of the table's foreign keys.
fn serves_foreign_key(index: &CatalogIndex, table: &CatalogTable) -> bool {
    let Some(definition) = IndexDefinition::parse(&table.schema, &table.name, &index.definition) else {
        return false;
    };
    table.foreign_keys.iter().any(|key| covers(&definition, &key.columns))
}

/// Returns true if the index begins with `columns`, in any order.
pub(crate) fn covers(definition: &IndexDefinition, columns: &[String]) -> bool {
    let first: BTreeSet<&str> = definition
        .keys
        .iter()
        .take(columns.len())
        .map(|key| key.split(' ').next().unwrap_or_default())
        .collect();
    let names: Vec<String> = columns.iter().map(|column| crate::names::sql_name(column)).collect();
    first == names.iter().map(String::as_str).collect() && definition.predicate.is_none()
}
