//! Finds problems in plans, and collects the evidence for them.

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

/// Memory throughput in bytes per second, for the fast end of estimated times.
const MEMORY_RATE: f64 = 4e9;

/// Disk throughput in bytes per second, for the slow end of estimated times.
const DISK_RATE: f64 = 2e8;

/// Number of rows per second that one process reads and compares, for the fast and for the slow end of estimated times.
const ROW_RATES: (f64, f64) = (25e6, 7e6);

/// Advice for a scan that no suggested index replaces.
pub(crate) const NO_INDEX: &str = "The planner uses none of the indexes that pgfresh tried, but pgfresh does not try every kind. Look at the \
     condition: an index serves a column or an immutable expression, compared with a value.";

/// A problem in a plan.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Problem {
    pub(crate) kind: PlanFindingKind,
    /// Node type as PostgreSQL calls it.
    pub(crate) node: String,
    /// Place of the table in the catalog. For a partition, the place of its outermost partitioned table.
    pub(crate) table: Option<usize>,
    pub(crate) rows: f64,
    pub(crate) bytes: f64,
    pub(crate) seconds: Option<(f64, f64)>,
    pub(crate) evidence: String,
    /// Change that solves the problem if no suggested index does.
    pub(crate) change: String,
    /// Cost before and after the change. `None` if the cost of the statement's plan applies.
    pub(crate) costs: Option<(f64, f64)>,
}

/// Returns the problems that are visible in the plan itself. `settings` are the session's own settings.
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

/// Returns the plan's index scans that discard most of their rows. Asks the planner how many rows each index condition
/// finds.
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

/// Returns the shortest and longest estimated time for a sequential read, in seconds.
fn read_seconds(bytes: f64, rows: f64, processes: f64) -> (f64, f64) {
    let processes = processes.max(1.0);
    (bytes / MEMORY_RATE + rows / ROW_RATES.0 / processes, bytes / DISK_RATE + rows / ROW_RATES.1 / processes)
}
