//! Measures tests that write one row and undo it: in rollback isolation, in a separate database for each test, and
//! rolled back by hand.

use std::time::Duration;

use report::{Contender, Quantity, Report, Table, Timed, Unit, mean_cycle};

use super::goals;
use super::sustained::together;
use crate::BenchError;
use crate::client::{Address, Client};
use crate::fixture::{BRIEF, BY_HAND, Fixture, ROLLED_BACK};
use crate::goal::{Goal, Limit};
use crate::summary::{add_samples, rate, ratio};

/// How long the cycles of a round take.
const SPAN: Duration = Duration::from_secs(1);
/// The statement of a test.
const WRITE: &str = "INSERT INTO t3 (name) VALUES ('a')";

const ROLLBACK: &str = "pgfresh, rollback, one name";
const OF_TWO: &str = "pgfresh, rollback, two workers, one name each";
const NAMES: &str = "pgfresh, rollback, a new name each";
const CLONE: &str = "pgfresh, clone, a new name each";
const DIRECT: &str = "by hand: connect, BEGIN … ROLLBACK";
const KEPT: &str = "by hand: BEGIN … ROLLBACK, connected once";

pub(super) fn contenders(fixture: &Fixture) -> Result<Vec<Contender<'_, BenchError>>, BenchError> {
    let socket = fixture.socket();
    let mut kept = socket.connect(BY_HAND, &[])?;
    let through = move |name: &str, option| test(&fixture.gateway(), name, &[option], "COMMIT");
    Ok(vec![
        Contender::new(ROLLBACK, move || mean_cycle("a test", SPAN, || through("rolled", ROLLED_BACK))),
        Contender::new(OF_TWO, move || {
            together(&mut ["rolled_1", "rolled_2"], &|name| through(name, ROLLED_BACK))
        }),
        Contender::new(NAMES, move || {
            mean_cycle("a test", SPAN, || through(&fixture.new_name(), ROLLED_BACK))
        }),
        Contender::new(CLONE, move || mean_cycle("a test", SPAN, || through(&fixture.new_name(), BRIEF))),
        Contender::new(DIRECT, move || {
            mean_cycle("a test", SPAN, || test(&socket, BY_HAND, &[], "ROLLBACK"))
        }),
        Contender::new(KEPT, move || mean_cycle("a test", SPAN, || write(&mut kept, "ROLLBACK"))),
    ])
}

/// Connects, writes a row, ends the transaction and disconnects.
fn test(address: &Address, name: &str, parameters: &[(&str, &str)], end: &str) -> Result<(), BenchError> {
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
    for name in [ROLLBACK, OF_TWO, NAMES, CLONE, DIRECT, KEPT] {
        table.add_row([name.into(), rate(timed, name).into(), ratio(timed, name, ROLLBACK).into()]);
    }
    report.add_table(table);
    add_samples(&mut report, timed);
    let goal = |workers: &str, least: f64, name| Goal {
        what: format!("leases in rollback isolation, {workers}").into(),
        limit: Limit::AtLeast(Quantity::new(least, Unit::PerSecond)),
        measured: rate(timed, name),
    };
    goals(&mut report, [goal("one worker", 1000.0, ROLLBACK), goal("two workers", 1600.0, OF_TWO)]);
    report
}
