//! Builds the report of the `pgbench` benchmark, with the published table for comparison.

use report::{Cell, Quantity, Report, Table, Timed, Unit};

use super::{CLIENTS, contender_name};
use crate::setup::Setup;
use crate::summary::{add_samples, add_warnings, find, interval, rate, ratio};

/// Published rates in transactions per second, with one, two and three clients. Each run took five minutes at scale 25
/// on the author's computer.
///
/// Source: End Point's blog, "Speeding Up Integration Tests with PostgreSQL".
const PUBLISHED: [(&str, [f64; 3]); 2] = [
    ("published: normal settings", [78.0, 80.0, 99.0]),
    ("published: three settings off (dangerous)", [414.0, 905.0, 1215.0]),
];

pub(super) fn of(timed: &[Timed], sides: &[&str]) -> Report {
    let mut report = Report::new("pgbench, TPC-B-like, on servers for tests");
    report.add_table(rates(timed, sides));
    report.add_table(gains(timed, sides));
    if timed.first().and_then(|timed| interval(&timed.total())).is_some() {
        report.add_table(intervals(timed, sides));
    }
    add_warnings(&mut report, timed, "--rounds");
    add_samples(&mut report, timed);
    report.add_notes([
        "The servers run side by side, and each is idle except in its turn. Before each turn there is a CHECKPOINT, \
        which is not counted. pgbench shares the processors with the server.",
        "pgfresh is reached as tests reach it, over TCP with a password through its gateway; all others over the \
         server's own socket.",
    ]);
    report
}

fn table(title: &str) -> Table {
    Table::numbers(title, "server", CLIENTS.map(|clients| format!("clients: {clients}")))
}

fn rates(timed: &[Timed], sides: &[&str]) -> Table {
    let mut table = table("Transactions a second");
    for (name, rates) in PUBLISHED {
        let rates = rates.map(|rate| Quantity::new(rate, Unit::PerSecond).into());
        table.add_row(std::iter::once(Cell::from(name)).chain(rates));
    }
    for side in sides {
        let rates = CLIENTS.map(|clients| rate(timed, &contender_name(side, clients)).into());
        table.add_row(std::iter::once(Cell::from(*side)).chain(rates));
    }
    table
}

fn gains(timed: &[Timed], sides: &[&str]) -> Table {
    let mut table = table("How many times as many as with normal settings on disk");
    let [(_, normal), (name, dangerous)] = PUBLISHED;
    let published = [0, 1, 2].map(|i| Quantity::new(dangerous[i] / normal[i], Unit::Ratio).into());
    table.add_row(std::iter::once(Cell::from(name)).chain(published));
    for side in sides.iter().filter(|side| **side != Setup::Normal.name()) {
        let gains = CLIENTS.map(|clients| {
            let base = contender_name(Setup::Normal.name(), clients);
            ratio(timed, &base, &contender_name(side, clients)).into()
        });
        table.add_row(std::iter::once(Cell::from(*side)).chain(gains));
    }
    table
}

fn intervals(timed: &[Timed], sides: &[&str]) -> Table {
    let mut table = table("From one transaction to the next, 95 % intervals of the median");
    for side in sides {
        let intervals = CLIENTS.map(|clients| {
            let timed = find(timed, &contender_name(side, clients));
            timed.and_then(|timed| interval(&timed.total())).into()
        });
        table.add_row(std::iter::once(Cell::from(*side)).chain(intervals));
    }
    table
}
