//! Finds foreign keys without an index, in tables whose referenced rows a suite deletes or updates.
//!
//! EXPLAIN doesn't show foreign-key checks, so pgfresh explains a query like the check's own, with a generic plan.

use super::{Problem, read_seconds};
use crate::candidates::covers;
use crate::conditions::outer_words;
use crate::definition::IndexDefinition;
use crate::names::{full_name, short_name, sql_name, unquoted};
use crate::numbers::{bytes, number};
use crate::tables::{Tables, page_bytes};
use crate::{
    BoundStatement, BoundValue, CatalogTable, ForeignKey, Limits, Plan, PlanFindingKind, RelationKind,
};

/// A foreign-key check, which a statement causes for each row that it deletes or updates.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ForeignKeyCheck {
    /// Place of the table with the foreign key.
    pub(crate) table: usize,
    /// Index of the foreign key in the table's list.
    pub(crate) key: usize,
    /// Operation on the referenced table, `Delete` or `Update`.
    pub(crate) operation: String,
    /// A query like the one that the check runs.
    pub(crate) question: BoundStatement,
}

/// Returns the foreign-key checks that a statement causes in large tables without a suitable index.
pub(crate) fn checks(text: &str, plan: &Plan, tables: &Tables<'_>, limits: &Limits) -> Vec<ForeignKeyCheck> {
    let mut found = Vec::new();
    for node in plan.nodes().filter(|node| node.kind == "ModifyTable") {
        let operation = node.text("Operation").unwrap_or_default();
        let Some(parent) = tables.of_node(node).map(|place| tables.table(tables.root(place))) else {
            continue;
        };
        let assigned = match operation {
            "Delete" => None,
            "Update" => Some(assigned_columns(text)),
            _ => continue,
        };
        for (place, table) in tables.catalog().tables.iter().enumerate() {
            let is_large = tables.pages(place) >= limits.index_pages;
            if !is_large || table.parent.is_some() {
                continue;
            }
            for (key, foreign) in table.foreign_keys.iter().enumerate() {
                let is_changed = assigned.as_ref().is_none_or(|assigned| {
                    foreign.referenced_columns.iter().any(|column| assigned.contains(column))
                });
                if refers(foreign, parent) && is_changed && !has_index(table, foreign) {
                    found.push(ForeignKeyCheck {
                        table: place,
                        key,
                        operation: operation.to_owned(),
                        question: question(table, foreign),
                    });
                }
            }
        }
    }
    found
}

/// Describes a check as a problem.
pub(crate) fn describe(check: &ForeignKeyCheck, tables: &Tables<'_>) -> Problem {
    let table = tables.table(check.table);
    let key = &table.foreign_keys[check.key];
    let (rows, pages) = (tables.rows(check.table), tables.pages(check.table));
    let size = page_bytes(pages);
    let name = short_name(&table.schema, &table.name);
    let columns: Vec<String> = key.columns.iter().map(|column| sql_name(column)).collect();
    let columns = columns.join(", ");
    let parent = short_name(&key.references.0, &key.references.1);
    let verb = if check.operation == "Delete" { "deletes from" } else { "changes the key of" };
    Problem {
        kind: PlanFindingKind::ForeignKeyWithoutIndex,
        node: "Seq Scan".to_owned(),
        table: Some(check.table),
        rows,
        bytes: size,
        seconds: Some(read_seconds(size, rows, 1.0)),
        evidence: format!(
            "The statement {verb} {parent}. For each such row, the server looks for rows of {name} ({} rows, {}) with this \
             {columns}, and no index has it.",
            number(rows),
            bytes(size)
        ),
        change: format!(
            "Create an index on {name} ({columns}), or drop the foreign key {}.",
            sql_name(&key.name)
        ),
        costs: None,
    }
}

fn refers(key: &ForeignKey, table: &CatalogTable) -> bool {
    key.references.0 == table.schema && key.references.1 == table.name
}

fn has_index(table: &CatalogTable, key: &ForeignKey) -> bool {
    table.indexes.iter().any(|index| {
        let definition = IndexDefinition::parse(&table.schema, &table.name, &index.definition);
        definition.is_some_and(|definition| {
            matches!(definition.method.as_str(), "btree" | "hash") && covers(&definition, &key.columns)
        })
    })
}

fn question(table: &CatalogTable, key: &ForeignKey) -> BoundStatement {
    let conditions: Vec<String> = key
        .columns
        .iter()
        .enumerate()
        .map(|(index, column)| format!("x.{} = ${}", sql_name(column), index + 1))
        .collect();
    // A partitioned table itself has no rows, so ONLY would exclude all rows.
    let only = if table.kind == RelationKind::PartitionedTable { "" } else { "ONLY " };
    let text = format!(
        "SELECT 1 FROM {only}{} x WHERE {} FOR KEY SHARE OF x",
        full_name(&table.schema, &table.name),
        conditions.join(" AND ")
    );
    let parameter = BoundValue { type_oid: 0, format: 0, value: None };
    BoundStatement { text, parameters: vec![parameter; key.columns.len()], ..BoundStatement::default() }
}

/// Returns the columns that an UPDATE sets.
fn assigned_columns(text: &str) -> Vec<String> {
    let words = outer_words(text);
    let is_word = |word: &str, keyword: &str| word.eq_ignore_ascii_case(keyword);
    let Some(set) = words.iter().position(|(word, _)| is_word(word, "set")) else { return Vec::new() };
    let rest = &words[set + 1..];
    let end =
        rest.iter().position(|(word, _)| ["where", "from", "returning"].iter().any(|end| is_word(word, end)));
    let rest = &rest[..end.unwrap_or(rest.len())];
    let start = words[set].1;
    let until = words.get(set + 1 + rest.len()).map_or(text.len(), |(_, at)| *at);
    let mut columns = Vec::new();
    for assignment in crate::conditions::list(&text[start + "set".len()..until]) {
        let target = assignment.split('=').next().unwrap_or_default();
        let target = crate::conditions::without_parentheses(target);
        columns.extend(crate::conditions::list(target).into_iter().map(|name| {
            let name = unquoted(name);
            if name.chars().any(char::is_uppercase) && !target.contains('"') {
                name.to_lowercase()
            } else {
                name
            }
        }));
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assigned_columns_are_read_from_text() {
        for (text, columns) in [
            ("UPDATE a SET b = 1, \"C\" = f(x, y) WHERE d = 2", &["b", "C"][..]),
            ("update a set (b, c) = (1, 2)", &["b", "c"]),
            ("UPDATE a SET ID = $1 RETURNING id", &["id"]),
            ("DELETE FROM a", &[]),
        ] {
            assert_eq!(assigned_columns(text), columns, "{text}");
        }
    }
}
