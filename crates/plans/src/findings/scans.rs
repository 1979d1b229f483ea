//! Finds sequential scans of large tables.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use report::as_f64;

use super::{NO_INDEX, Problem, read_seconds};
use crate::names::short_name;
use crate::numbers::{bytes, number, percent, whole};
use crate::tables::{Tables, page_bytes};
use crate::walk::{Visit, visits};
use crate::{Limits, Plan, PlanFindingKind, SequentialRead};

/// If a condition keeps at least this fraction of a table's rows, an index can't help.
const MOST: f64 = 0.05;

/// Fraction of rows that the planner assumes for a range condition without statistics. Source: `DEFAULT_INEQ_SEL`.
const ASSUMED: f64 = 1.0 / 3.0;

/// A sequential scan of a table. The scans of a partitioned table's partitions count as one scan.
#[derive(Debug, Clone, Default)]
struct Scan {
    /// Number of bytes that the scan reads. `rows` is the number of rows.
    bytes: f64,
    rows: f64,
    /// Number of rows that the filter keeps.
    kept: f64,
    filter: Option<String>,
    processes: f64,
    loops: f64,
    parallel: bool,
}

impl Scan {
    /// Returns the shortest and longest estimated time for all repetitions, in seconds.
    fn seconds(&self) -> (f64, f64) {
        let (low, high) = read_seconds(self.bytes, self.rows, self.processes);
        (low * self.loops, high * self.loops)
    }

    /// Compares two scans of a table: the one that reads more is greater, and of two that read the same, the one that
    /// keeps fewer rows.
    fn compare(&self, other: &Self) -> Ordering {
        let size = |scan: &Self| scan.bytes * scan.loops;
        size(self).total_cmp(&size(other)).then(other.kept.total_cmp(&self.kept))
    }
}

/// Returns the tables that a plan reads sequentially, largest first.
pub(crate) fn sequential_reads(plan: &Plan, tables: &Tables<'_>) -> Vec<SequentialRead> {
    let scans = scans(&visits(plan), tables);
    let mut reads: Vec<SequentialRead> = scans
        .into_iter()
        .map(|(place, scans)| SequentialRead {
            table: short_name(&tables.table(place).schema, &tables.table(place).name),
            rows: tables.rows(place),
            bytes: whole(most_bytes(&scans)),
        })
        .collect();
    reads.sort_by(|left, right| right.bytes.cmp(&left.bytes).then_with(|| left.table.cmp(&right.table)));
    reads
}

/// Returns the number of bytes that the largest scan reads.
fn most_bytes(scans: &[Scan]) -> f64 {
    scans.iter().map(|scan| scan.bytes).fold(0.0, f64::max)
}

/// Returns the scans by the place of their table. Partitions count as part of their outermost partitioned table.
fn scans(visits: &[Visit<'_>], tables: &Tables<'_>) -> BTreeMap<usize, Vec<Scan>> {
    // The aliases of a table's partitions differ only in the number at the end.
    let mut by_alias: BTreeMap<(usize, &str), Scan> = BTreeMap::new();
    for visit in visits.iter().filter(|visit| visit.node.kind == "Seq Scan") {
        let Some(place) = tables.of_node(visit.node) else { continue };
        let table = tables.table(place);
        let root = tables.root(place);
        let alias = visit.node.text("Alias").unwrap_or_default();
        let stem = alias.trim_end_matches(|letter: char| letter.is_ascii_digit());
        let scan = by_alias.entry((root, if root == place { alias } else { stem })).or_default();
        scan.bytes += page_bytes(table.pages) * visit.fraction;
        scan.rows += table.rows.max(0.0) * visit.fraction;
        scan.kept += (kept(visit, visits) * visit.fraction).min(table.rows.max(0.0));
        scan.processes = scan.processes.max(visit.processes);
        scan.loops = scan.loops.max(visit.loops);
        scan.parallel |= visit.processes > 1.0;
        scan.filter = scan.filter.take().or_else(|| visit.node.text("Filter").map(str::to_owned));
    }
    let mut by_table: BTreeMap<usize, Vec<Scan>> = BTreeMap::new();
    for ((place, _), scan) in by_alias {
        by_table.entry(place).or_default().push(scan);
    }
    by_table
}

/// Returns the number of rows that all processes together keep.
fn kept(visit: &Visit<'_>, visits: &[Visit<'_>]) -> f64 {
    let parent = visit.parent.map(|parent| visits[parent].node);
    match parent.filter(|parent| matches!(parent.kind.as_str(), "Gather" | "Gather Merge")) {
        // The rows of a single process are rounded.
        Some(gather) => gather.rows,
        None => visit.node.rows * visit.processes,
    }
}

/// Returns a problem for each table whose sequential scans read many bytes.
pub(super) fn large(visits: &[Visit<'_>], tables: &Tables<'_>, limits: &Limits) -> Vec<Problem> {
    let scans = scans(visits, tables).into_iter();
    scans
        .filter(|(_, scans)| most_bytes(scans) >= as_f64(limits.scan_bytes))
        .filter_map(|(place, scans)| problem(place, &scans, tables))
        .collect()
}

/// Describes the largest scan of a table. Returns `None` if there is no scan.
fn problem(place: usize, scans: &[Scan], tables: &Tables<'_>) -> Option<Problem> {
    let scan = scans.iter().max_by(|left, right| left.compare(right))?;
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
    let others = match scans.len() - 1 {
        0 => String::new(),
        1 => format!(" Another scan of the plan reads {name}, too."),
        others => format!(" {others} other scans of the plan read {name}, too."),
    };
    let seconds = scans.iter().map(Scan::seconds);
    let range = seconds.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    Some(Problem {
        kind: PlanFindingKind::SequentialScan,
        node: if scan.parallel { "Parallel Seq Scan" } else { "Seq Scan" }.to_owned(),
        table: Some(place),
        rows,
        bytes: scan.bytes,
        seconds: Some(range),
        evidence: format!("The plan reads {part}{times}{filter}.{others}"),
        change: change(scan, rows, &name),
        costs: None,
    })
}

/// Returns advice for a scan that no index replaces.
fn change(scan: &Scan, rows: f64, name: &str) -> String {
    let kept = scan.kept / rows.max(1.0);
    match &scan.filter {
        None => format!(
            "No condition narrows the rows of {name}, so no index helps. A condition, a LIMIT or a summary table would."
        ),
        Some(_) if (kept - ASSUMED).abs() < 0.001 => format!(
            "Without statistics of a compared expression, the planner assumes that it keeps a third of {name}. Compare the \
             column itself, or create statistics or an index on the expression.",
        ),
        Some(_) if kept >= MOST => format!(
            "The condition keeps {} of {name}, so reading the table is right. Narrow the condition, or keep a summary table.",
            percent(kept)
        ),
        Some(filter) if filter.contains("~~*") || filter.contains("~~ '%") => {
            "An index of the extension pg_trgm can search within texts. A B-tree cannot.".to_owned()
        }
        Some(_) => NO_INDEX.to_owned(),
    }
}

/// Shortens a condition for use in a sentence.
pub(super) fn cut(condition: &str) -> String {
    report::cut(condition, 80)
}
