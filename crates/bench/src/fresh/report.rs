//! Builds the report of the `fresh` benchmark.

use report::{Cell, Quantity, Report, Sample, Table, Timed, Unit, as_f64};

use super::sustained::{WORKERS, WorkerContenders};
use super::{burst, http, paced};
use crate::goal::{Goal, Limit};
use crate::summary::{add_samples, find, interval, rate, ratio};

pub(super) fn of(timed: &[Timed], samples: &paced::Samples, http_samples: &http::Samples) -> Report {
    let mut report = Report::new("A fresh database, and its first query");
    report.add_table(sequential_table(timed, samples));
    report.add_table(burst_table(timed));
    report.add_table(sustained_table(timed));
    report.add_table(http::table(timed, http_samples));
    add_samples(&mut report, timed);
    super::add_goals(&mut report, goals(timed, samples).into_iter().chain(http::goals(timed, http_samples)));
    report.add_notes([
        "Through the gateway: over TCP, with a password. By hand: over the server's own unix socket, with a session \
         that is open already for the statement; what is made is dropped untimed, except in the rates.",
        "A session alone: over the server's own socket, with a database that is there. With one worker it keeps no two \
         processors busy either.",
        "The template has 30 tables. The pool, the gateway and both clients share the machine.",
    ]);
    report
}

fn sequential_table(timed: &[Timed], samples: &paced::Samples) -> Table {
    let columns = ["least", "median", "p99", "most", "count", "× the first"];
    let mut table = Table::numbers("One after another, 20 in a second", "what", columns);
    let warm = samples.warm.borrow();
    let floor = samples.floor.borrow();
    let strange = samples.strange.borrow();
    let by_hand: Vec<_> = samples.by_hand.iter().map(|(_, sample)| sample.borrow()).collect();
    for sample in [&*warm, &*floor, &*strange].into_iter().chain(by_hand.iter().map(|sample| &**sample)) {
        if sample.is_empty() {
            continue;
        }
        table.add_row(statistics_row(sample, ratio(timed, sample.name(), paced::WARM).into()));
    }
    table
}

fn burst_table(timed: &[Timed]) -> Table {
    let columns = ["until the last has its answer", "95 %", "a database", "× the gateway's"];
    let mut table = Table::numbers("A burst beyond the pool", "what", columns);
    for name in [burst::GATEWAY, burst::BY_HAND] {
        let Some(all) = find(timed, name).map(Timed::total) else { continue };
        let each = all
            .median()
            .map(|all| Quantity::new(all.value / as_f64(burst::CONCURRENT_REQUESTS), Unit::Seconds));
        table.add_row([
            name.into(),
            all.median().into(),
            interval(&all).into(),
            each.into(),
            ratio(timed, name, burst::GATEWAY).into(),
        ]);
    }
    table
}

fn sustained_table(timed: &[Timed]) -> Table {
    let title = "Databases in a second, obtained, asked and disposed of";
    let columns =
        ["through the gateway", "of the best", "a session alone", "of its best alone", "by hand", "ratio"];
    let mut table = Table::numbers(title, "workers", columns);
    for WorkerContenders { workers, gateway, by_hand, session } in WORKERS {
        table.add_row([
            workers.to_string().into(),
            rate(timed, gateway).into(),
            share_of_best_rate(timed, Some(gateway), |crowd| Some(crowd.gateway)).into(),
            session.and_then(|name| rate(timed, name)).into(),
            share_of_best_rate(timed, session, |crowd| crowd.session).into(),
            by_hand.and_then(|name| rate(timed, name)).into(),
            by_hand.and_then(|name| ratio(timed, name, gateway)).into(),
        ]);
    }
    table
}

/// Returns a rate as a fraction of the best rate that the contender reaches with any number of workers.
fn share_of_best_rate(
    timed: &[Timed],
    name: Option<&str>,
    way: fn(&WorkerContenders) -> Option<&'static str>,
) -> Option<Quantity> {
    let rates = WORKERS.iter().filter_map(|crowd| rate(timed, way(crowd)?));
    let best = rates.map(|rate| rate.value).reduce(f64::max)?;
    Some(Quantity::new(rate(timed, name?)?.value / best, Unit::Ratio))
}

fn goals(timed: &[Timed], samples: &paced::Samples) -> Vec<Goal> {
    let (warm, strange) = (samples.warm.borrow(), samples.strange.borrow());
    let ms = |ms: f64| Limit::AtMost(Quantity::new(ms / 1e3, Unit::Seconds));
    let fold = |fold: f64| Limit::AtLeast(Quantity::new(fold, Unit::Ratio));
    let goal = |what: &'static str, limit, measured| Goal { what: what.into(), limit, measured };
    let by_hand = samples.by_hand.iter().map(|(strategy, _)| strategy.name());
    let quicker = by_hand.filter_map(|name| ratio(timed, name, paced::WARM));
    let quicker = quicker.min_by(|one, other| one.value.total_cmp(&other.value));
    let burst = find(timed, burst::GATEWAY).and_then(|burst| burst.total().median());
    let mut goals = vec![
        goal("a new name and its first query, median", ms(1.0), warm.median()),
        goal("a new name and its first query, 99 of 100", ms(5.0), warm.percentile(99.0)),
        goal("… with a kind of start-up not seen before, median", ms(4.0), strange.median()),
        goal("times as fast as by hand, whichever way", fold(10.0), quicker),
        goal("a burst, times as fast as by hand", fold(1.0), ratio(timed, burst::BY_HAND, burst::GATEWAY)),
        goal("a burst, until the last has its answer", ms(2.0 * as_f64(burst::CONCURRENT_REQUESTS)), burst),
    ];
    goals.extend(WORKERS.iter().map(|WorkerContenders { workers, gateway, .. }| Goal {
        what: format!("workers: {workers}, of the best").into(),
        limit: fold(0.9),
        measured: share_of_best_rate(timed, Some(gateway), |crowd| Some(crowd.gateway)),
    }));
    goals
}

/// Returns a table row with a sample's statistics: its name, minimum, median, 99th percentile, maximum, and number of
/// values, with a ratio in the last cell.
pub(super) fn statistics_row(sample: &Sample, ratio: Cell) -> [Cell; 7] {
    [
        sample.name().into(),
        sample.min().into(),
        sample.median().into(),
        sample.percentile(99.0).into(),
        sample.max().into(),
        count(sample).into(),
        ratio,
    ]
}

pub(super) fn count(sample: &Sample) -> Quantity {
    Quantity::new(as_f64(sample.len()), Unit::Count)
}
