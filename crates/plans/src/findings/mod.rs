//! Findings: problems in plans, with their evidence.

mod discards;
mod foreign_keys;
mod generic;
mod loops;
mod memory;
mod offsets;
mod scans;

#[cfg(test)]
mod tests;

pub(crate) use self::foreign_keys::{ForeignKeyCheck, checks, describe};
pub(crate) use self::generic::{expensive_generic, is_chosen};
pub(crate) use self::offsets::growing_offset;
pub(crate) use self::scans::sequential_reads;

use crate::tables::Tables;
use crate::walk::visits;
use crate::workload::{CachedPlanner, Item};
use crate::{Limits, Plan, PlanFindingKind};

/// Bytes a second from memory, the fast end of estimated durations.
const MEMORY_RATE: f64 = 4e9;

/// Bytes a second from a disk, the slow end of estimated durations.
const DISK_RATE: f64 = 2e8;

/// Rows a second that one process reads and compares, at the fast and at the slow end.
const ROW_RATES: (f64, f64) = (25e6, 7e6);

/// A problem of one plan.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Problem {
    pub(crate) kind: PlanFindingKind,
    /// Type of the node.
    pub(crate) node: String,
    /// Place of the table in the catalog, that of the outermost partitioned table for partitions.
    pub(crate) table: Option<usize>,
    pub(crate) rows: f64,
    pub(crate) bytes: f64,
    pub(crate) seconds: Option<(f64, f64)>,
    pub(crate) evidence: String,
    /// Change to make if no index solves the problem.
    pub(crate) change: String,
    /// Cost before and after the change, if it is not that of the statement's plan.
    pub(crate) costs: Option<(f64, f64)>,
}

/// Returns the problems that a plan itself shows. `settings` are those of the session.
pub(crate) fn problems(
    plan: &Plan,
    tables: &Tables<'_>,
    settings: &[(String, String)],
    limits: &Limits,
) -> Vec<Problem> {
    if plan.root.total_cost < limits.cost {
        return Vec::new();
    }
    let visits = visits(plan);
    let mut found = scans::large(&visits, tables, limits);
    found.extend(memory::large(&visits, tables, settings, limits));
    found.extend(loops::nested(&visits, tables, limits));
    found
}

/// Returns index scans of a plan that discard most rows. This asks the planner how many rows a condition finds.
pub(crate) fn discarding(
    cached: &mut CachedPlanner<'_>,
    item: &Item,
    plan: &Plan,
    tables: &Tables<'_>,
    limits: &Limits,
) -> Vec<Problem> {
    if plan.root.total_cost < limits.cost {
        return Vec::new();
    }
    discards::discarding(cached, item, &visits(plan), tables, limits)
}

/// Returns the shortest and the longest time to read pages in their order.
fn read_seconds(bytes: f64, rows: f64, processes: f64) -> (f64, f64) {
    let processes = processes.max(1.0);
    (bytes / MEMORY_RATE + rows / ROW_RATES.0 / processes, bytes / DISK_RATE + rows / ROW_RATES.1 / processes)
}
