//! Finds sorts and hash tables that exceed their memory, so that the server writes temporary files.

use serde_json::Value;

use super::{DISK_RATE, MEMORY_RATE, Problem};
use crate::numbers::{aligned, bytes, number};
use crate::tables::Tables;
use crate::walk::Visit;
use crate::{Limits, PlanFindingKind};

/// Default of `work_mem` in bytes.
const DEFAULT_MEMORY: f64 = 4.0 * 1024.0 * 1024.0;

/// Size of a row header in sorts and hash tables, in bytes, as the planner computes it.
const HEADER: f64 = 24.0;

/// Size of a group header in hashed aggregates, in bytes: a hash entry and an aggregate's state.
const GROUP_HEADER: f64 = 64.0;

/// Returns a problem for each large sort and hash table. `settings` are the session's own settings.
pub(super) fn large(
    visits: &[Visit<'_>],
    tables: &Tables<'_>,
    settings: &[(String, String)],
    limits: &Limits,
) -> Vec<Problem> {
    let work_mem = tables.memory("work_mem", settings).unwrap_or(DEFAULT_MEMORY);
    let mut found: Vec<Problem> = Vec::new();
    for visit in visits {
        let Some((kind, rows, size)) = demand(visit, visits) else { continue };
        let multiplier =
            if kind == PlanFindingKind::LargeHash { tables.hash_multiplier(settings) } else { 1.0 };
        let memory = work_mem * multiplier;
        if size > memory && size >= limits.spill_bytes {
            found.push(problem(kind, visit, rows, size, memory));
        }
    }
    found
}

/// Returns the number of rows and bytes that a node holds in memory at the same time. `None` for nodes that neither
/// sort nor hash.
fn demand(visit: &Visit<'_>, visits: &[Visit<'_>]) -> Option<(PlanFindingKind, f64, f64)> {
    let node = visit.node;
    let bytes = |rows: f64, width: f64, header: f64| rows * (aligned(width) + header);
    match node.kind.as_str() {
        "Sort" => {
            let input = node.children.first()?;
            let rows = bound(visit, visits).unwrap_or(f64::INFINITY).min(input.rows);
            Some((PlanFindingKind::LargeSort, rows, bytes(rows, input.width, HEADER)))
        }
        "Hash" => {
            let input = node.children.first()?;
            Some((PlanFindingKind::LargeHash, input.rows, bytes(input.rows, input.width, HEADER)))
        }
        "Aggregate" if node.text("Strategy") == Some("Hashed") => {
            Some((PlanFindingKind::LargeHash, node.rows, bytes(node.rows, node.width, GROUP_HEADER)))
        }
        _ => None,
    }
}

/// Nodes that pass the bound of a LIMIT on to their input. Source: `ExecSetTupleBound`.
const PASSING: &[&str] = &["Gather", "Gather Merge", "Append", "Merge Append", "Result", "Subquery Scan"];

/// Returns the number of rows that a LIMIT above a sort needs from it: those that it skips and those that it returns.
/// `None` if no LIMIT bounds the sort.
fn bound(visit: &Visit<'_>, visits: &[Visit<'_>]) -> Option<f64> {
    let mut below = visit.node;
    let mut parent = visit.parent;
    while let Some(above) = parent.map(|parent| &visits[parent]) {
        if above.node.kind == "Limit" {
            let run = below.total_cost - below.startup_cost;
            // EXPLAIN doesn't show the OFFSET. The planner adds the cost of the skipped rows to the LIMIT's startup cost.
            let skipped = (above.node.startup_cost - below.startup_cost).max(0.0);
            let skipped = if run > 0.0 { (skipped / run).min(1.0) * below.rows } else { 0.0 };
            return Some(skipped + above.node.rows);
        }
        if !PASSING.contains(&above.node.kind.as_str()) || above.node.text("Filter").is_some() {
            return None;
        }
        (below, parent) = (above.node, above.parent);
    }
    None
}

fn problem(kind: PlanFindingKind, visit: &Visit<'_>, rows: f64, size: f64, memory: f64) -> Problem {
    let node = visit.node;
    let (node_name, verb) = match node.kind.as_str() {
        "Aggregate" => ("HashAggregate", "groups"),
        kind => (kind, "rows"),
    };
    let keys = ["Sort Key", "Group Key"].iter().find_map(|name| node.properties.get(*name));
    let keys: Vec<&str> =
        keys.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let by =
        if keys.is_empty() { String::new() } else { format!(" by {}", super::scans::cut(&keys.join(", "))) };
    let (setting, share) = if kind == PlanFindingKind::LargeHash {
        ("work_mem × hash_mem_multiplier", size / memory)
    } else {
        ("work_mem", size / memory)
    };
    // The server writes the rows to temporary files once and reads them once.
    let traffic = 2.0 * size * visit.loops.max(1.0);
    Problem {
        kind,
        node: node_name.to_owned(),
        table: None,
        rows,
        bytes: size,
        seconds: Some((traffic / MEMORY_RATE, traffic / DISK_RATE)),
        evidence: format!(
            "The {node_name}{by} holds {} {verb}, about {}, and {setting} is {}. The rest goes to temporary files.",
            number(rows),
            bytes(size),
            bytes(memory)
        ),
        change: format!(
            "Fetch fewer rows or columns, or give this statement about {share:.0} times as much work_mem with SET LOCAL.",
            share = share.ceil()
        ),
        costs: None,
    }
}
