//! Measures tests that write one row, comparing three ways to undo the write: rollback isolation, a separate database
//! for each test, and ROLLBACK by hand.

use std::time::Duration;

use report::{Contender, Quantity, Report, Table, Timed, Unit, mean_cycle};

use super::add_goals;
use super::sustained::run_workers;
use crate::BenchError;
use crate::client::{Address, Client};
use crate::fixture::{Fixture, MANUAL_DATABASE, NO_LINGER, ROLLBACK_ISOLATION};
use crate::goal::{Goal, Limit};
use crate::summary::{add_samples, rate, ratio};

/// Duration of each contender's turn in a round.
const SPAN: Duration = Duration::from_secs(1);
/// A test's statement.
const WRITE: &str = "INSERT INTO t3 (name) VALUES ('a')";

const ROLLBACK: &str = "pgfresh, rollback, one name";
const ROLLBACK_TWO_WORKERS: &str = "pgfresh, rollback, two workers, one name each";
const ROLLBACK_NEW_NAMES: &str = "pgfresh, rollback, a new name each";
const CLONE: &str = "pgfresh, clone, a new name each";
const MANUAL_ROLLBACK: &str = "by hand: connect, BEGIN … ROLLBACK";
const MANUAL_ROLLBACK_CONNECTED: &str = "by hand: BEGIN … ROLLBACK, connected once";

pub(super) fn contenders(fixture: &Fixture) -> Result<Vec<Contender<'_, BenchError>>, BenchError> {
    let socket = fixture.socket();
    let mut kept = socket.connect(MANUAL_DATABASE, &[])?;
    let through = move |name: &str, option| run_test(&fixture.gateway(), name, &[option], "COMMIT");
    Ok(vec![
        Contender::new(ROLLBACK, move || {
            mean_cycle("a test", SPAN, || through("rolled", ROLLBACK_ISOLATION))
        }),
        Contender::new(ROLLBACK_TWO_WORKERS, move || {
            run_workers(&mut ["rolled_1", "rolled_2"], &|name| through(name, ROLLBACK_ISOLATION))
        }),
        Contender::new(ROLLBACK_NEW_NAMES, move || {
            mean_cycle("a test", SPAN, || through(&fixture.new_name(), ROLLBACK_ISOLATION))
        }),
        Contender::new(CLONE, move || mean_cycle("a test", SPAN, || through(&fixture.new_name(), NO_LINGER))),
        Contender::new(MANUAL_ROLLBACK, move || {
            mean_cycle("a test", SPAN, || run_test(&socket, MANUAL_DATABASE, &[], "ROLLBACK"))
        }),
        Contender::new(MANUAL_ROLLBACK_CONNECTED, move || {
            mean_cycle("a test", SPAN, || write(&mut kept, "ROLLBACK"))
        }),
    ])
}

/// Connects, writes a row, ends the transaction with `end`, and disconnects.
fn run_test(address: &Address, name: &str, parameters: &[(&str, &str)], end: &str) -> Result<(), BenchError> {
    let mut client = address.connect(name, parameters)?;
    write(&mut client, end)?;
    Ok(client.close()?)
}

fn write(client: &mut Client, end: &str) -> Result<(), BenchError> {
    for statement in ["BEGIN", WRITE, end] {
        client.query(statement)?;
    }
    Ok(())
}

pub(super) fn report(timed: &[Timed]) -> Report {
    let mut report = Report::new("Tests that write a row and leave none");
    let columns = ["in a second", "the first's × these"];
    let mut table = Table::numbers("Connect, BEGIN, INSERT, COMMIT, disconnect", "what", columns);
    for name in [
        ROLLBACK,
        ROLLBACK_TWO_WORKERS,
        ROLLBACK_NEW_NAMES,
        CLONE,
        MANUAL_ROLLBACK,
        MANUAL_ROLLBACK_CONNECTED,
    ] {
        table.add_row([name.into(), rate(timed, name).into(), ratio(timed, name, ROLLBACK).into()]);
    }
    report.add_table(table);
    add_samples(&mut report, timed);
    let goal = |workers: &str, least: f64, name| Goal {
        what: format!("leases in rollback isolation, {workers}").into(),
        limit: Limit::AtLeast(Quantity::new(least, Unit::PerSecond)),
        measured: rate(timed, name),
    };
    add_goals(
        &mut report,
        [goal("one worker", 1000.0, ROLLBACK), goal("two workers", 1600.0, ROLLBACK_TWO_WORKERS)],
    );
    report
}
