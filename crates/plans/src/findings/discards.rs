//! Finds index scans that discard most of the rows that the index finds.
//!
//! EXPLAIN doesn't show how many rows an index finds before the filter, so pgfresh explains the index condition alone.
//! If the condition compares with another table, pgfresh estimates the number instead: the table's rows divided by the
//! distinct values of the columns.

use super::{NO_INDEX, Problem, read_seconds};
use crate::conditions::{Test, conjuncts, references, single_reference, test};
use crate::definition::IndexDefinition;
use crate::names::{full_name, short_name, sql_name};
use crate::numbers::distinct_values;
use crate::numbers::{number, percent};
use crate::tables::{Tables, page_bytes};
use crate::walk::Visit;
use crate::workload::{CachedPlanner, Item};
use crate::{BoundStatement, CatalogTable, Limits, Node, PlanFindingKind, PlanMode};

/// Time to fetch a row through an index, in seconds: from memory, and from a disk.
const FETCH: (f64, f64) = (0.5e-6, 100e-6);

/// Returns a problem for each index scan that discards most of its rows.
pub(super) fn discarding(
    cached: &mut CachedPlanner<'_>,
    item: &Item,
    visits: &[Visit<'_>],
    tables: &Tables<'_>,
    limits: &Limits,
) -> Vec<Problem> {
    let mut found = Vec::new();
    for visit in visits {
        let node = visit.node;
        let is_index = matches!(node.kind.as_str(), "Index Scan" | "Index Only Scan" | "Bitmap Heap Scan");
        let (true, Some(filter), Some(place)) = (is_index, node.text("Filter"), tables.of_node(node)) else {
            continue;
        };
        let enough = tables.table(place).rows >= limits.discarded_rows;
        let Some(each) =
            Some(()).filter(|()| enough).and_then(|()| rows_of_index(cached, item, node, place, tables))
        else {
            continue;
        };
        // In a parallel plan, `node.rows` counts the rows of a single process.
        let kept = node.rows * visit.processes;
        let scale = visit.fraction * visit.loops;
        let discarded = (each - kept).max(0.0) * scale;
        let fraction = discarded / (each * scale).max(1.0);
        if discarded >= limits.discarded_rows && fraction >= limits.discarded_fraction {
            found.push(problem(visit, place, tables, (each * scale, discarded), filter));
        }
    }
    found
}

fn problem(
    visit: &Visit<'_>,
    place: usize,
    tables: &Tables<'_>,
    (rows, discarded): (f64, f64),
    filter: &str,
) -> Problem {
    let node = visit.node;
    let table = tables.table(place);
    let index = index_of(node).unwrap_or("the index");
    let pages = rows.min(page_bytes(table.pages) / page_bytes(1) * visit.loops.max(1.0));
    let scan = read_seconds(page_bytes(table.pages), 0.0, 1.0).1;
    let high = (pages * FETCH.1).min(scan.max(rows * FETCH.0) * visit.loops.max(1.0));
    let root = tables.root(place);
    Problem {
        kind: PlanFindingKind::DiscardingScan,
        node: node.kind.clone(),
        table: Some(root),
        rows,
        bytes: 0.0,
        seconds: Some((rows * FETCH.0, high.max(rows * FETCH.0))),
        evidence: format!(
            "{index} finds about {} rows of {}, and the condition {} discards {} of them.",
            number(rows.round()),
            short_name(&table.schema, &table.name),
            super::scans::cut(filter),
            percent(discarded / rows.max(1.0))
        ),
        change: NO_INDEX.to_owned(),
        costs: None,
    }
}

fn index_of(node: &Node) -> Option<&str> {
    node.text("Index Name").or_else(|| node.children.iter().find_map(index_of))
}

/// Returns the number of rows that one index search finds. `None` if it can't be estimated.
fn rows_of_index(
    cached: &mut CachedPlanner<'_>,
    item: &Item,
    node: &Node,
    place: usize,
    tables: &Tables<'_>,
) -> Option<f64> {
    let table = tables.table(place);
    if node.kind == "Bitmap Heap Scan" {
        return node.children.first().map(|bitmap| bitmap.rows);
    }
    let (index_rows, predicate) = rows_and_predicate(node, table);
    let alias = node.text("Alias")?;
    let Some(condition) = node.text("Index Cond") else {
        return match predicate {
            Some(predicate) if index_rows <= 0.0 => ask(cached, item, table, alias, &predicate),
            Some(_) => Some(index_rows),
            None => Some(table.rows),
        };
    };
    let is_own = references(condition).iter().all(|reference| reference.alias == alias);
    let has_values = !condition.contains('$') && !condition.contains("Plan ");
    if is_own && has_values {
        let predicate = predicate.map(|predicate| format!(" AND ({predicate})")).unwrap_or_default();
        return ask(cached, item, table, alias, &format!("{condition}{predicate}"));
    }
    let all = if predicate.is_some() && index_rows > 0.0 { index_rows } else { table.rows };
    let mut rows = all;
    for part in conjuncts(condition) {
        let Some(Test::Comparison { left, operator: "=", any: false, .. }) = test(part) else { continue };
        let column = single_reference(left)?;
        let column = table.columns.iter().find(|known| known.name == column.column)?;
        rows *= (1.0 - column.null_fraction) / distinct_values(column.distinct?, table.rows).max(1.0);
    }
    // Without an equality condition there is no estimate.
    (rows < all).then_some(rows)
}

/// Returns the planner's estimate of how many rows of a table meet a condition.
fn ask(
    cached: &mut CachedPlanner<'_>,
    item: &Item,
    table: &CatalogTable,
    alias: &str,
    condition: &str,
) -> Option<f64> {
    let table = full_name(&table.schema, &table.name);
    let text = format!("SELECT FROM {table} AS {} WHERE {condition}", sql_name(alias));
    let question =
        BoundStatement { text, settings: item.question.settings.clone(), ..BoundStatement::default() };
    let plan = cached.ask(&question, PlanMode::Custom)?;
    // The outermost node is above any Gather, so its row count includes all processes.
    Some(plan.root.rows)
}

/// Returns the row count of the index that a node reads, and the condition of a partial index. The row count is 0 or
/// negative if it is unknown.
fn rows_and_predicate(node: &Node, table: &CatalogTable) -> (f64, Option<String>) {
    let mut indexes = table.indexes.iter();
    let Some(index) = indexes.find(|index| node.text("Index Name") == Some(&index.name)) else {
        return (-1.0, None);
    };
    let definition = IndexDefinition::parse(&table.schema, &table.name, &index.definition);
    (index.rows, definition.and_then(|definition| definition.predicate))
}
