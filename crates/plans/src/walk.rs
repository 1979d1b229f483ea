//! Determines how often and how far one execution of a plan runs each node.

use serde_json::Value;

use crate::{Node, Plan};

/// A node, with the part of it that one execution of the plan runs.
#[derive(Debug)]
pub(crate) struct Visit<'a> {
    pub(crate) node: &'a Node,
    /// Index of the parent node in the list of all visits. `None` for the outermost node.
    pub(crate) parent: Option<usize>,
    /// Fraction of the node's rows that its parents fetch, from 0 to 1. Less than 1 below a LIMIT.
    pub(crate) fraction: f64,
    /// Number of executions.
    pub(crate) loops: f64,
    /// Number of processes that share the work, as the planner counts them. The leader contributes less the more
    /// workers it has.
    pub(crate) processes: f64,
}

/// Returns all nodes, each before its children.
pub(crate) fn visits(plan: &Plan) -> Vec<Visit<'_>> {
    let mut visits =
        vec![Visit { node: &plan.root, parent: None, fraction: 1.0, loops: 1.0, processes: 1.0 }];
    let mut at = 0;
    while at < visits.len() {
        let node = visits[at].node;
        for child in &node.children {
            let visit = descend(&visits, at, child);
            visits.push(visit);
        }
        at += 1;
    }
    visits
}

fn descend<'a>(visits: &[Visit<'a>], at: usize, child: &'a Node) -> Visit<'a> {
    let Visit { node, fraction, loops, processes, .. } = visits[at];
    let workers = node.properties.get("Workers Planned").and_then(Value::as_f64).unwrap_or(0.0);
    // Source: `get_parallel_divisor` in `costsize.c`.
    let shared = if workers > 0.0 { workers + (1.0 - 0.3 * workers).max(0.0) } else { 1.0 };
    let mut visit =
        Visit { node: child, parent: Some(at), fraction, loops, processes: processes.max(shared) };
    match child.text("Parent Relationship") {
        Some("InitPlan") => return Visit { fraction: 1.0, loops: 1.0, ..visit },
        Some("SubPlan") => {
            let name = child.text("Subplan Name").unwrap_or_default();
            let hashed = format!("hashed {name}");
            let is_hashed =
                node.properties.values().filter_map(Value::as_str).any(|text| text.contains(&hashed));
            let loops = if is_hashed { 1.0 } else { loops * (node.rows * fraction).max(1.0) };
            return Visit { fraction: 1.0, loops, ..visit };
        }
        _ => {}
    }
    match node.kind.as_str() {
        "Nested Loop" if child.text("Parent Relationship") == Some("Inner") => {
            let outer = node.children.iter().find(|other| other.text("Parent Relationship") == Some("Outer"));
            visit.loops *= outer.map_or(1.0, |outer| (outer.rows * fraction).max(1.0));
            visit.fraction = 1.0;
        }
        // Materialize stores its rows, so its input runs only once even if Materialize itself is repeated.
        "Materialize" => visit.loops = visits[at].parent.map_or(1.0, |parent| visits[parent].loops),
        "Limit" => {
            let whole = child.total_cost - child.startup_cost;
            let part = node.total_cost - child.startup_cost;
            visit.fraction *= if whole > 0.0 { (part / whole).clamp(0.0, 1.0) } else { 1.0 };
        }
        _ => {}
    }
    // The node reads its whole input before it returns its first row, so a LIMIT above doesn't shorten its input.
    if node.kind != "Limit" && child.total_cost > 0.0 && node.startup_cost >= 0.95 * child.total_cost {
        visit.fraction = 1.0;
    }
    visit
}
