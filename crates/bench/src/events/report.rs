//! Builds the report of the `events` benchmark.
//!
//! The report contains tables, plots of the batches' means with their running average, and the distribution of
//! individual events.

use report::{Cell, Distribution, Plot, Quantity, Report, Sample, Table, TimeSeries, Timed, Unit, as_f64};

use super::TargetSamples;
use crate::summary::{add_samples, add_warnings, interval, ratio};

/// Published rates in events per second, measured by the author with Axon Framework on the JVM, with one transaction
/// per event.
///
/// Source: "That one time I had a Postgres cluster on my veranda", Digital Frontiers: an M.2 SSD, cool and at 80 °C. On
/// the hot SSD, `fdatasync` fell from 988 to 299 calls per second.
const PUBLISHED: [(&str, f64); 2] = [
    ("published: durable, over 1,000,000 events", 250.0),
    ("published: fdatasync of that SSD when hot", 298.926),
];

pub(super) fn of(timed: &[Timed], tracks: &[&TargetSamples], batch: u32) -> Report {
    let mut report = Report::new("Events, one transaction for each");
    for (timed, track) in timed.iter().zip(tracks) {
        report.add_plot(batch_plot(timed, track, batch));
    }
    report.add_distribution(Distribution::new(
        "How long single events take",
        tracks.iter().map(|track| track.each.clone()),
    ));
    report.add_table(rates(timed, tracks));
    report.add_table(latencies(tracks));
    add_warnings(&mut report, timed, "--batches");
    add_samples(&mut report, timed);
    report
        .add_notes([format!("Batches of {batch} events take turns; the first of each is a warm-up, apart.")]);
    report
}

/// Plots the mean of each batch, the running average of these means, and the temperature.
fn batch_plot(timed: &Timed, track: &TargetSamples, batch: u32) -> Plot {
    let means = timed.total();
    let mut sum = 0.0;
    let running = (1_u32..).zip(means.values()).map(|(count, mean)| {
        sum += mean;
        Some(sum / f64::from(count))
    });
    let seconds = |name: &str, values| TimeSeries { name: name.to_owned(), unit: Unit::Seconds, values };
    let mut series = vec![
        seconds("mean of a batch", means.values().iter().map(|mean| Some(*mean)).collect()),
        seconds("running average", running.collect()),
    ];
    if track.degrees.iter().any(Option::is_some) {
        let values = track.degrees.iter().take(means.len()).copied().collect();
        series.push(TimeSeries { name: "temperature".to_owned(), unit: Unit::Celsius, values });
    }
    let events = f64::from(u32::try_from(means.len()).unwrap_or(u32::MAX)) * f64::from(batch);
    Plot::new(format!("An event: {}", track.name), Quantity::new(events, Unit::Count), series)
}

fn rates(timed: &[Timed], tracks: &[&TargetSamples]) -> Table {
    let columns = ["events a second", "an event", "95 %", "warm-up", "× as fast"];
    let mut table = Table::numbers("Events a second", "where", columns);
    for (what, rate) in PUBLISHED {
        let each = Quantity::new(1.0 / rate, Unit::Seconds);
        let rate = Quantity::new(rate, Unit::PerSecond);
        table.add_row([what.into(), rate.into(), each.into(), Cell::Missing, Cell::Missing, Cell::Missing]);
    }
    for (index, (one, track)) in timed.iter().zip(tracks).enumerate() {
        let means = one.total();
        let rate = means.mean().map(|mean| Quantity::new(1.0 / mean.value, Unit::PerSecond));
        let gain = timed.first().filter(|_| index > 0).and_then(|base| ratio(timed, base.name(), one.name()));
        table.add_row([
            one.name().into(),
            rate.into(),
            means.median().into(),
            interval(&means).into(),
            track.warm_up.map(|seconds| Quantity::new(seconds, Unit::Seconds)).into(),
            gain.into(),
        ]);
    }
    table
}

fn latencies(tracks: &[&TargetSamples]) -> Table {
    let columns = ["events", "least", "p50", "p90", "p99", "p99.9", "most"];
    let mut table = Table::numbers("Single events", "where", columns);
    for TargetSamples { name, each, .. } in tracks {
        let of = |percent| Cell::from(each.percentile(percent));
        table.add_row([
            name.as_str().into(),
            count(each),
            of(0.0),
            of(50.0),
            of(90.0),
            of(99.0),
            of(99.9),
            of(100.0),
        ]);
    }
    table
}

fn count(sample: &Sample) -> Cell {
    Quantity::new(as_f64(sample.len()), Unit::Count).into()
}
