//! Builds the report of the `start` benchmark: the contenders, their phases, the goals, and published figures
//! for comparison.

use report::{Cell, Column, Quantity, Report, Sample, Table, Timed, Unit, Warning, as_f64};

use crate::memory::Peak;
use crate::summary::{add_samples, find, interval, ratio};

/// The phases of pgfresh's start, in order. The user can start working after `first answer`.
pub(crate) const PHASES: [&str; 8] =
    ["look-up", "copy", "boot", "rest of the copy", "first answer", "command", "stop", "remove"];
/// The phases of all contenders up to the server's first response.
pub(crate) const PHASES_TO_RESPONSE: [&str; 8] =
    ["look-up", SET_UP, "copy", "initdb", "start", "boot", "rest of the copy", "first answer"];
/// The phase that replaces `look-up` if the setup runs each time.
pub(crate) const SET_UP: &str = "look-up and setup";
/// The phases after the user's command.
pub(crate) const END_PHASES: [&str; 2] = ["stop", "remove"];

pub(crate) const PGFRESH: &str = "pgfresh, within this process";
pub(crate) const WHOLE_COMMAND: &str = "pgfresh run -- true, the whole process";
pub(crate) const TEMPLATE: &str = "pgfresh, with the project's template";
pub(crate) const REPLAY: &str = "pgfresh, with its setup replayed each time";
pub(crate) const FLOOR: &str = "floor: raw copy, then postgres";
pub(crate) const MANUAL: &str = "by hand: initdb, pg_ctl";
pub(crate) const MANUAL_ON_DISK: &str = "by hand: initdb, pg_ctl, on disk";
pub(crate) const MANUAL_UNSYNCED: &str = "by hand: initdb --no-sync, pg_ctl with fsync=off";

/// The results of the benchmark.
pub(crate) struct StartMeasurements<'a> {
    pub(crate) timed: &'a [Timed],
    pub(crate) peaks: &'a [Peak],
}

pub(crate) fn of(facts: &StartMeasurements<'_>) -> Report {
    let mut report = Report::new("Start of a server, to its first answer and back");
    report.add_table(contenders(facts));
    add_samples(&mut report, facts.timed);
    report.add_table(phases("pgfresh, phase by phase", facts.find(PGFRESH)));
    for (title, name) in [
        ("With the project's template, phase by phase", TEMPLATE),
        ("With its setup replayed, phase by phase", REPLAY),
    ] {
        if facts.find(name).is_some() {
            report.add_table(phases(title, facts.find(name)));
        }
    }
    report.add_table(phases("The floor, phase by phase", facts.find(FLOOR)));
    report.add_table(phases("By hand, phase by phase", facts.find(MANUAL)));
    report.add_table(goals(facts));
    report.add_table(published(facts));
    for name in [PGFRESH, FLOOR] {
        report.add_notes(Warning::of(&facts.time_to_response(name)));
    }
    report.add_notes(Warning::of(&facts.total(WHOLE_COMMAND)));
    report.add_notes([
        "The floor copies with all cores and then boots; pgfresh boots while it copies. The floor's pid file is read \
         every 0.1 ms, and the measured time includes no lookup and no guard.",
        "By hand, the first response arrives in a session of the benchmark itself, so the start of psql is not counted.",
        "Times of by hand include the removal of the data directory.",
    ]);
    report
}

impl StartMeasurements<'_> {
    fn find(&self, name: &str) -> Option<&Timed> {
        find(self.timed, name)
    }

    fn sum(&self, name: &str, phases: &[&str]) -> Sample {
        self.find(name).map_or_else(|| Sample::new(name, Unit::Seconds), |timed| timed.sum(phases))
    }

    fn time_to_response(&self, name: &str) -> Sample {
        self.sum(name, &PHASES_TO_RESPONSE)
    }

    fn total(&self, name: &str) -> Sample {
        self.find(name).map_or_else(|| Sample::new(name, Unit::Seconds), Timed::total)
    }
}

/// Lists each contender's time until the first response, its total time, and its ratio to pgfresh.
fn contenders(facts: &StartMeasurements<'_>) -> Table {
    let columns = ["to first answer", "95 % of that", "stop, remove", "all of it", "95 %", "× pgfresh run"];
    let mut table = Table::numbers("Contenders, in turn", "what", columns);
    for timed in facts.timed {
        let (answer, total) = (timed.sum(&PHASES_TO_RESPONSE), timed.total());
        table.add_row([
            timed.name().into(),
            answer.median().into(),
            interval(&answer).into(),
            timed.sum(&END_PHASES).median().into(),
            total.median().into(),
            interval(&total).into(),
            ratio(facts.timed, timed.name(), WHOLE_COMMAND).into(),
        ]);
    }
    table
}

fn phases(title: &str, timed: Option<&Timed>) -> Table {
    let mut table = Table::numbers(title, "phase", ["median", "95 %", "least", "most"]);
    for phase in timed.into_iter().flat_map(Timed::phases) {
        table.add_row([
            phase.name().into(),
            phase.median().into(),
            interval(phase).into(),
            phase.min().into(),
            phase.max().into(),
        ]);
    }
    table
}

/// Compares the goals with the measured values.
fn goals(facts: &StartMeasurements<'_>) -> Table {
    let columns = [
        Column::left("goal"),
        Column::right("at most"),
        Column::right("measured"),
        Column::right("95 %"),
        Column::left("met"),
    ];
    let mut table = Table::new("Goals, on a machine of its own", columns);
    let (ours, floor) = (facts.time_to_response(PGFRESH), facts.time_to_response(FLOOR));
    let of_floor = ours.ratio_to(&floor).unwrap_or_else(|_| Sample::new("ratio", Unit::Ratio));
    let owner = facts.peaks.iter().filter_map(|peak| peak.owner).max().map(bytes);
    let guard = facts.peaks.iter().filter_map(|peak| peak.guard).max().map(bytes);
    let seconds = |value| Quantity::new(value, Unit::Seconds);
    let ends = facts.sum(PGFRESH, &END_PHASES);
    let goals = [
        (
            "start to first answer, of the floor",
            Quantity::new(1.15, Unit::Ratio),
            of_floor.median(),
            interval(&of_floor),
        ),
        ("start to first answer", seconds(0.080), ours.median(), interval(&ours)),
        ("stop and remove", seconds(0.010), ends.median(), interval(&ends)),
        (
            "pgfresh run -- true",
            seconds(0.050),
            facts.total(WHOLE_COMMAND).median(),
            interval(&facts.total(WHOLE_COMMAND)),
        ),
        ("peak memory of pgfresh", bytes(15_000_000), owner, None),
        ("peak memory of its guard", bytes(15_000_000), guard, None),
    ];
    for (goal, limit, measured, range) in goals {
        let met = match measured {
            Some(measured) if measured.value <= limit.value => "yes",
            Some(_) => "no",
            None => "unknown",
        };
        table.add_row([goal.into(), limit.into(), measured.into(), range.into(), met.into()]);
    }
    table
}

fn bytes(count: u64) -> Quantity {
    Quantity::new(as_f64(count), Unit::Bytes)
}

/// Compares the published figures for tmp-postgres 1.34 with the times that the same steps take on this machine.
///
/// Source: an article of December 2019 by the author of tmp-postgres. The figures are for his old implementation and
/// for the one with all of his improvements.
fn published(facts: &StartMeasurements<'_>) -> Table {
    let columns = [
        Column::left("where"),
        Column::right("before"),
        Column::right("after"),
        Column::right("times as fast"),
        Column::left("before is"),
    ];
    let mut table = Table::new("Compared with the published figures of tmp-postgres", columns);
    for (place, before, after) in [("macOS, published", 1.44, 0.248), ("Ubuntu, published", 0.608, 0.092)] {
        let seconds = |value| Cell::from(Quantity::new(value, Unit::Seconds));
        let gain = Quantity::new(before / after, Unit::Ratio);
        table.add_row([
            place.into(),
            seconds(before),
            seconds(after),
            gain.into(),
            "initdb, start, createdb, stop".into(),
        ]);
    }
    let whole = facts.total(WHOLE_COMMAND);
    for (place, name) in [
        ("here, on disk", MANUAL_ON_DISK),
        ("here, in the same place", MANUAL),
        ("here, in the same place, unsynced", MANUAL_UNSYNCED),
    ] {
        let before = facts.total(name);
        if before.is_empty() {
            continue;
        }
        let gain = ratio(facts.timed, name, WHOLE_COMMAND);
        table.add_row([
            place.into(),
            before.median().into(),
            whole.median().into(),
            gain.into(),
            "initdb, start, stop, remove".into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_report_has_both_intervals() {
        let turn = || Ok::<_, ()>(vec![("boot", std::time::Duration::from_millis(20))]);
        let mut contenders = [report::Contender::new(PGFRESH, turn)];
        let (timed, _) = report::Rounds::new(0, 6).time(&mut contenders, &(), None);
        let report = of(&StartMeasurements { timed: &timed, peaks: &[] }).to_json();
        let row = &report["tables"][0]["rows"][0];
        let [answer, all] = ["95 % of that", "95 %"].map(|title| row[title].clone());
        assert_eq!((answer, all), ("20.0 ms to 20.0 ms".into(), "20.0 ms to 20.0 ms".into()));
    }
}
