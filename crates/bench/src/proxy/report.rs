//! Builds the report of the `gateway` benchmark.

use report::{Quantity, Report, Table, Timed, Unit};

use storage::human_bytes;

use super::copy::{COPY_IN, COPY_OUT, Rows};
use super::fixture::{ProxyFixture, Route};
use super::idle_sessions::{IDLE_SESSIONS, IdleSessionCosts};
use super::pgbench::{BUSY_WORKLOAD, ProcessorTimes, WORKLOADS, contender_name};
use crate::goal::{self, Goal, Limit};
use crate::summary::{add_samples, find, ratio};

pub(super) fn of(
    timed: &[Timed],
    used: &ProcessorTimes,
    rows: &Rows,
    crowd: Option<&IdleSessionCosts>,
    fixture: &ProxyFixture,
) -> Report {
    let mut report = Report::new("The cost of the gateway");
    add_samples(&mut report, timed);
    for load in WORKLOADS {
        report.add_table(table(timed, fixture, load.name, "transactions", |each| {
            Quantity::new(1.0 / each, Unit::PerSecond)
        }));
    }
    report.add_table(processor_times(used, fixture));
    for what in [COPY_OUT, COPY_IN] {
        report.add_table(table(timed, fixture, what, "time", |each| Quantity::new(each, Unit::Seconds)));
    }
    if let Some(crowd) = crowd {
        report.add_table(idle_sessions_table(crowd));
    }
    report.add_table(goal::table(goals(timed, used, crowd)));
    report.add_notes([
        "One server, one database, in turn. pgbench speaks the simple protocol; its scale is 20. pgbench, the server \
        and the gateway or proxy share the machine.",
        "The bare forwarder is a thread that reads bytes and writes them on without looking at them. It shows the \
        minimum cost of any program between client and server.",
        "What a route is worth is the speed over it as a part of that over a direct TCP connection, the median over \
         all rounds.",
    ]);
    let (copied_out, copied_in) = (human_bytes(rows.out), human_bytes(rows.bytes_in()));
    report.add_notes([format!("COPY brings {copied_out} out, and {copied_in} in, into an unlogged table.")]);
    match &fixture.bouncer {
        Some(version) => report.add_notes([format!("{version}, without a password; pgfresh asks for one.")]),
        None => report.add_notes(["PgBouncer is not installed (Debian: pgbouncer), so it is not compared."]),
    }
    report
}

fn table(
    timed: &[Timed],
    fixture: &ProxyFixture,
    what: &str,
    column: &str,
    read: impl Fn(f64) -> Quantity,
) -> Table {
    let mut table = Table::numbers(what, "way", [column, "of direct"]);
    for (route, _) in &fixture.routes {
        let median = find(timed, &contender_name(what, *route)).and_then(|timed| timed.total().median());
        table.add_row([
            route.name().into(),
            median.map(|median| read(median.value)).into(),
            relative_speed(timed, what, *route, Route::Direct).into(),
        ]);
    }
    table
}

fn processor_times(used: &ProcessorTimes, fixture: &ProxyFixture) -> Table {
    let title = "Processor time of the gateway or proxy, for each transaction";
    let mut table = Table::numbers(title, "way", WORKLOADS.map(|load| load.name));
    for (route, _) in &fixture.routes {
        let medians = WORKLOADS.map(|load| used.median(&contender_name(load.name, *route)));
        if medians.iter().any(Option::is_some) {
            table.add_row([route.name().into()].into_iter().chain(medians.map(Into::into)));
        }
    }
    table
}

fn idle_sessions_table(crowd: &IdleSessionCosts) -> Table {
    let title = format!("{} among {IDLE_SESSIONS} idle sessions", BUSY_WORKLOAD.name);
    let mut table = Table::numbers(title, "what", ["transactions"]);
    for (what, each) in [
        ("pgfresh, without the idle ones", crowd.alone),
        ("pgfresh", crowd.among),
        ("direct TCP", crowd.direct),
    ] {
        table.add_row([what.into(), Quantity::new(1.0 / each.as_secs_f64(), Unit::PerSecond).into()]);
    }
    table
}

fn goals(timed: &[Timed], used: &ProcessorTimes, crowd: Option<&IdleSessionCosts>) -> Vec<Goal> {
    let fold = |fold: f64| Limit::AtLeast(Quantity::new(fold, Unit::Ratio));
    let goal = |what: String, limit, measured| Goal { what: what.into(), limit, measured };
    let mut goals = Vec::new();
    for load in WORKLOADS {
        let of = |base| relative_speed(timed, load.name, Route::Gateway, base);
        goals.push(goal(format!("{}, of direct", load.name), fold(0.85), of(Route::Direct)));
        goals.push(goal(format!("{}, of PgBouncer", load.name), fold(1.0), of(Route::PgBouncer)));
    }
    let [_, selects, ..] = WORKLOADS;
    let most = Limit::AtMost(Quantity::new(12e-6, Unit::Seconds));
    let measured = used.median(&contender_name(selects.name, Route::Gateway));
    goals.push(goal(format!("{}, processor time of each", selects.name), most, measured));
    for what in [COPY_OUT, COPY_IN] {
        let worth = relative_speed(timed, what, Route::Gateway, Route::Direct);
        goals.push(goal(format!("{what}, of direct"), fold(0.9), worth));
    }
    let memory = crowd.and_then(|crowd| crowd.memory).map(|memory| Quantity::new(memory, Unit::Bytes));
    let most = Limit::AtMost(Quantity::new(30_000.0, Unit::Bytes));
    goals.push(goal("memory of an idle session".to_owned(), most, memory));
    goals
}

/// Returns the speed over `route` as a fraction of the speed over `base`.
fn relative_speed(timed: &[Timed], what: &str, route: Route, base: Route) -> Option<Quantity> {
    ratio(timed, &contender_name(what, base), &contender_name(what, route))
}
