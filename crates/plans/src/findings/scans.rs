//! Finds sequential scans of large tables.

use std::collections::BTreeMap;

use report::as_f64;

use super::{Problem, read_seconds};
use crate::names::short_name;
use crate::numbers::{bytes, number, percent, whole};
use crate::tables::{Tables, page_bytes};
use crate::walk::{Visit, visits};
use crate::{Limits, Plan, PlanFindingKind, SequentialRead};

/// If a condition keeps at least this fraction of a table's rows, an index can't help.
const MOST: f64 = 0.05;

/// All sequential scans of a table in one plan.
#[derive(Debug, Clone, Default)]
struct Scan {
    /// Number of bytes that the scans read. `rows` is the number of rows.
    bytes: f64,
    rows: f64,
    /// Number of rows that the filter keeps.
    kept: f64,
    filter: Option<String>,
    processes: f64,
    loops: f64,
    parallel: bool,
}

/// Returns the tables that a plan reads sequentially, largest first.
pub(crate) fn sequential_reads(plan: &Plan, tables: &Tables<'_>) -> Vec<SequentialRead> {
    let scans = scans(&visits(plan), tables);
    let mut reads: Vec<SequentialRead> = scans
        .into_iter()
        .map(|(place, scan)| SequentialRead {
            table: short_name(&tables.table(place).schema, &tables.table(place).name),
            rows: tables.rows(place),
            bytes: whole(scan.bytes),
        })
        .collect();
    reads.sort_by(|left, right| right.bytes.cmp(&left.bytes).then_with(|| left.table.cmp(&right.table)));
    reads
}

/// Returns the scans by the place of their table. Partitions count as part of their outermost partitioned table.
fn scans(visits: &[Visit<'_>], tables: &Tables<'_>) -> BTreeMap<usize, Scan> {
    let mut scans: BTreeMap<usize, Scan> = BTreeMap::new();
    for visit in visits.iter().filter(|visit| visit.node.kind == "Seq Scan") {
        let Some(place) = tables.of_node(visit.node) else { continue };
        let table = tables.table(place);
        let scan = scans.entry(tables.root(place)).or_default();
        let read = page_bytes(table.pages) * visit.fraction;
        // For several scans of the same table, the largest counts. Scans of different partitions add up.
        scan.bytes = if tables.root(place) == place { scan.bytes.max(read) } else { scan.bytes + read };
        scan.rows += table.rows.max(0.0) * visit.fraction;
        scan.kept += (visit.node.rows * visit.processes * visit.fraction).min(table.rows.max(0.0));
        scan.processes = scan.processes.max(visit.processes);
        scan.loops = scan.loops.max(visit.loops);
        scan.parallel |= visit.processes > 1.0;
        scan.filter = scan.filter.take().or_else(|| visit.node.text("Filter").map(str::to_owned));
    }
    scans
}

/// Returns a problem for each table whose sequential scans read many bytes.
pub(super) fn large(visits: &[Visit<'_>], tables: &Tables<'_>, limits: &Limits) -> Vec<Problem> {
    let scans = scans(visits, tables).into_iter();
    scans
        .filter(|(_, scan)| scan.bytes >= as_f64(limits.scan_bytes))
        .map(|(place, scan)| problem(place, &scan, tables))
        .collect()
}

fn problem(place: usize, scan: &Scan, tables: &Tables<'_>) -> Problem {
    let rows = tables.rows(place);
    let whole = page_bytes(tables.pages(place));
    let name = short_name(&tables.table(place).schema, &tables.table(place).name);
    let part = if scan.bytes < 0.95 * whole {
        format!("{} of {name} ({} in all)", bytes(scan.bytes), bytes(whole))
    } else {
        format!("all {} rows of {name} ({})", number(rows), bytes(whole))
    };
    let filter = match &scan.filter {
        Some(filter) => format!(", and keeps about {} where {}", number(scan.kept.round()), cut(filter)),
        None => String::new(),
    };
    let times =
        if scan.loops > 1.5 { format!(", {} times", number(scan.loops.round())) } else { String::new() };
    let (low, high) = read_seconds(scan.bytes, scan.rows, scan.processes);
    let range = (low * scan.loops, high * scan.loops);
    Problem {
        kind: PlanFindingKind::SequentialScan,
        node: if scan.parallel { "Parallel Seq Scan" } else { "Seq Scan" }.to_owned(),
        table: Some(place),
        rows,
        bytes: scan.bytes,
        seconds: Some(range),
        evidence: format!("The plan reads {part}{times}{filter}."),
        change: change(scan, rows, &name),
        costs: None,
    }
}

/// Returns advice for a scan that no index replaces.
fn change(scan: &Scan, rows: f64, name: &str) -> String {
    let kept = scan.kept / rows.max(1.0);
    match &scan.filter {
        None => format!(
            "No condition narrows the rows of {name}, so no index helps. A condition, a LIMIT or a summary table would."
        ),
        Some(_) if kept >= MOST => format!(
            "The condition keeps {} of {name}, so reading the table is right. Narrow the condition, or keep a summary table.",
            percent(kept)
        ),
        Some(filter) if filter.contains("~~*") || filter.contains("~~ '%") => {
            "An index of the extension pg_trgm can search within texts. A B-tree cannot.".to_owned()
        }
        Some(_) => "pgfresh found no index that the planner would use. Look at the condition: an index serves a column \
                    or an immutable expression, compared with a value."
            .to_owned(),
    }
}

/// Shortens a condition for use in a sentence.
pub(super) fn cut(condition: &str) -> String {
    report::cut(condition, 80)
}
