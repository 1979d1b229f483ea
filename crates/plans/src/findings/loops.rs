//! Finds nested loops with many repetitions.

use super::Problem;
use crate::numbers::{cost, number};
use crate::tables::Tables;
use crate::walk::Visit;
use crate::{Limits, Node, PlanFindingKind};

/// Returns a problem for each nested loop that repeats its inner side often.
pub(super) fn nested(visits: &[Visit<'_>], tables: &Tables<'_>, limits: &Limits) -> Vec<Problem> {
    let mut found = Vec::new();
    for visit in visits.iter().filter(|visit| visit.node.kind == "Nested Loop") {
        let side =
            |name| visit.node.children.iter().find(|child| child.text("Parent Relationship") == Some(name));
        let (Some(outer), Some(inner)) = (side("Outer"), side("Inner")) else { continue };
        let loops = outer.rows * visit.fraction * visit.loops * visit.processes;
        let share = visit.node.total_cost * visit.fraction * visit.loops;
        if loops >= limits.loop_rows && share >= limits.cost {
            found.push(problem(inner, loops, tables));
        }
    }
    found
}

fn problem(inner: &Node, loops: f64, tables: &Tables<'_>) -> Problem {
    let scan = scan_of(inner);
    let table = scan.and_then(|scan| tables.of_node(scan)).map(|place| tables.root(place));
    let name = scan.and_then(|scan| scan.text("Relation Name"));
    let side = match name {
        Some(name) => format!("{} on {name}", inner.kind),
        None => inner.kind.clone(),
    };
    let most = if inner.kind == "Memoize" { "up to " } else { "" };
    Problem {
        kind: PlanFindingKind::NestedLoop,
        node: "Nested Loop".to_owned(),
        table,
        rows: loops,
        bytes: 0.0,
        seconds: None,
        evidence: format!(
            "The inner side ({side}) runs {most}{} times, at a cost of {} each.",
            number(loops),
            cost(inner.total_cost)
        ),
        change: "Narrow the outer side before the join, so that fewer rows reach it. If the rows are far fewer in \
                 production, the planner's estimate is wrong: extended statistics (CREATE STATISTICS) can help."
            .to_owned(),
        costs: None,
    }
}

/// Returns the node that reads a table, following the first child at each level. `None` if that path reads no table.
fn scan_of(node: &Node) -> Option<&Node> {
    if node.text("Relation Name").is_some() { Some(node) } else { node.children.first().and_then(scan_of) }
}
