//! Measures how long it takes to reset a used database.
//!
//! Each test writes three rows to each of three tables (out of 30) and takes a number from a sequence. The reset undoes
//! this, so that the next test can use the database.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use lease::{Isolation, LeaseError};
use report::{Contender, Quantity, Report, Sample, Table, Timed, Unit, mean_cycle};
use server::AdminConnection;

use super::report::statistics_row;
use super::sustained::run_workers;
use super::{Strategy, add_goals, clear, repeat, sample};
use crate::BenchError;
use crate::client::{Address, Client};
use crate::fixture::{DEFAULT_TABLES, Fixture, NO_LINGER};
use crate::goal::{Goal, Limit};
use crate::summary::{add_samples, rate, ratio};

/// Number of resets per round.
const RESETS_PER_ROUND: u32 = 20;
/// Duration of the complete cycles per round.
const CYCLES_DURATION: Duration = Duration::from_secs(1);
/// Maximum time until the gateway notices the end of a session.
const END_TIMEOUT: Duration = Duration::from_mins(1);
/// A test's statements.
const TEST_STATEMENTS: [&str; 4] = [
    "INSERT INTO t3 (name) VALUES ('a'), ('b'), ('c')",
    "INSERT INTO t11 (name) VALUES ('a'), ('b'), ('c')",
    "INSERT INTO t27 (name) VALUES ('a'), ('b'), ('c')",
    "SELECT nextval('number')",
];

const RESET: &str = "reset by pgfresh";
const COPIED: &str = "by hand: dropped and copied";
const TRUNCATED: &str = "by hand: TRUNCATE of 30 tables";
const CYCLE: &str = "cycles with pgfresh";
const CYCLE_OF_TWO: &str = "cycles with pgfresh, two workers";
const CYCLE_COPIED: &str = "cycles by hand: a copy each";
const CYCLE_TRUNCATED: &str = "cycles by hand: TRUNCATE of 30 tables";

/// The duration of each reset.
pub(super) struct Samples([RefCell<Sample>; 3]);

impl Default for Samples {
    fn default() -> Self {
        Self([RESET, COPIED, TRUNCATED].map(sample))
    }
}

impl Samples {
    /// Discards the warm-up's values.
    pub(super) fn discard_warm_up(&self) {
        self.0.iter().for_each(clear);
    }
}

pub(super) fn contenders<'a>(
    fixture: &'a Fixture,
    samples: &'a Samples,
) -> Result<Vec<Contender<'a, BenchError>>, BenchError> {
    let Samples([reset, copied, truncated]) = samples;
    let strategy = Strategy::best(fixture.major());
    let name = fixture.leases.lease(Isolation::Clone, None, None)?.0;
    let (by_copy, by_truncate) = (fixture.new_name(), fixture.new_name());
    let mut admin = fixture.admin()?;
    for name in [&by_copy, &by_truncate] {
        strategy.create(&mut admin, name)?;
    }
    let socket = fixture.socket();
    let (mut renewing, worn) = (Copier { fixture, admin: fixture.admin()?, strategy }, by_truncate.clone());
    let (mut cycling, socket_too) = (Copier { fixture, admin: fixture.admin()?, strategy }, fixture.socket());
    Ok(vec![
        Contender::new(RESET, move || {
            repeat(reset, RESETS_PER_ROUND, || time_reset(fixture, &name, &TEST_STATEMENTS))
        }),
        Contender::new(COPIED, move || repeat(copied, RESETS_PER_ROUND, || renewing.replace(&by_copy))),
        Contender::new(TRUNCATED, move || {
            repeat(truncated, RESETS_PER_ROUND, || time_truncate(&socket, &by_truncate))
        }),
        Contender::new(CYCLE, move || mean_cycle("a cycle", CYCLES_DURATION, || cycle(fixture))),
        Contender::new(CYCLE_OF_TWO, move || run_workers(&mut [(), ()], &|()| cycle(fixture))),
        Contender::new(CYCLE_COPIED, move || mean_cycle("a cycle", CYCLES_DURATION, || cycling.cycle())),
        Contender::new(CYCLE_TRUNCATED, move || {
            let cycle = || {
                let mut client = run_test(&socket_too, &worn, &[], &TEST_STATEMENTS)?;
                client.query(&truncate_statement())?;
                Ok(client.close()?)
            };
            mean_cycle("a cycle", CYCLES_DURATION, cycle)
        }),
    ])
}

/// Gets a database, uses it like a test, and releases it.
fn cycle(fixture: &Fixture) -> Result<(), BenchError> {
    Ok(run_test(&fixture.gateway(), &fixture.new_name(), &[NO_LINGER], &TEST_STATEMENTS)?.close()?)
}

/// Connects to a database and runs a test's statements.
fn run_test(
    address: &Address,
    name: &str,
    parameters: &[(&str, &str)],
    statements: &[impl AsRef<str>],
) -> Result<Client, BenchError> {
    let mut client = address.connect(name, parameters)?;
    for statement in statements {
        client.query(statement.as_ref())?;
    }
    Ok(client)
}

/// Uses a database like a test, closes the session, and returns how long the reset took.
pub(super) fn time_reset(
    fixture: &Fixture,
    name: &str,
    statements: &[impl AsRef<str>],
) -> Result<Duration, BenchError> {
    run_test(&fixture.gateway(), name, &[], statements)?.close()?;
    let closed = Instant::now();
    loop {
        let begun = Instant::now();
        match fixture.leases.reset(name, false) {
            // The gateway hasn't noticed the end of the session yet, so try again.
            Err(LeaseError::InUse { .. }) if closed.elapsed() < END_TIMEOUT => std::thread::yield_now(),
            other => return Ok(other.map(|()| begun.elapsed())?),
        }
    }
}

fn time_truncate(socket: &Address, name: &str) -> Result<Duration, BenchError> {
    let mut client = run_test(socket, name, &[], &TEST_STATEMENTS)?;
    let begun = Instant::now();
    client.query(&truncate_statement())?;
    let taken = begun.elapsed();
    client.close()?;
    Ok(taken)
}

fn truncate_statement() -> String {
    let tables: Vec<_> = (1..=DEFAULT_TABLES).map(|table| format!("t{table}")).collect();
    format!("TRUNCATE {} RESTART IDENTITY CASCADE; SELECT setval('number', 1, false)", tables.join(", "))
}

/// A contender that replaces used databases with new copies of the template.
struct Copier<'a> {
    fixture: &'a Fixture,
    admin: AdminConnection,
    strategy: Strategy,
}

impl Copier<'_> {
    /// Uses a database like a test, then replaces it. Returns how long the replacement took.
    fn replace(&mut self, name: &str) -> Result<Duration, BenchError> {
        run_test(&self.fixture.socket(), name, &[], &TEST_STATEMENTS)?.close()?;
        let begun = Instant::now();
        self.admin.query(&format!("DROP DATABASE {name}"))?;
        self.strategy.create(&mut self.admin, name)?;
        Ok(begun.elapsed())
    }

    fn cycle(&mut self) -> Result<(), BenchError> {
        let name = self.fixture.new_name();
        self.strategy.create(&mut self.admin, &name)?;
        run_test(&self.fixture.socket(), &name, &[], &TEST_STATEMENTS)?.close()?;
        self.admin.query(&format!("DROP DATABASE {name}"))?;
        Ok(())
    }
}

pub(super) fn report(timed: &[Timed], samples: &Samples) -> Report {
    let mut report = Report::new("A used database, reset");
    add_samples(&mut report, timed);
    let columns = ["least", "median", "p99", "most", "count", "× pgfresh"];
    let mut table = Table::numbers("Ready again", "what", columns);
    for sample in &samples.0 {
        let sample = sample.borrow();
        table.add_row(statistics_row(&sample, ratio(timed, sample.name(), RESET).into()));
    }
    report.add_table(table);
    let columns = ["in a second", "pgfresh's × these"];
    let mut table = Table::numbers("Obtained, used, disposed of, by one worker and by two", "what", columns);
    for name in [CYCLE, CYCLE_OF_TWO, CYCLE_COPIED, CYCLE_TRUNCATED] {
        table.add_row([name.into(), rate(timed, name).into(), ratio(timed, name, CYCLE).into()]);
    }
    report.add_table(table);
    let fold = |fold: f64| Limit::AtLeast(Quantity::new(fold, Unit::Ratio));
    let goal = |what: &'static str, limit, measured| Goal { what: what.into(), limit, measured };
    let median = samples.0[0].borrow().median();
    let two_ms = Limit::AtMost(Quantity::new(0.002, Unit::Seconds));
    let a_second = |count: f64| Limit::AtLeast(Quantity::new(count, Unit::PerSecond));
    add_goals(
        &mut report,
        [
            goal("ready again, median", two_ms, median),
            goal("cycles, one worker", a_second(500.0), rate(timed, CYCLE)),
            goal("cycles, two workers", a_second(900.0), rate(timed, CYCLE_OF_TWO)),
            goal("cycles, times as many as with a copy each", fold(10.0), ratio(timed, CYCLE_COPIED, CYCLE)),
            goal("cycles, times as many as with TRUNCATE", fold(5.0), ratio(timed, CYCLE_TRUNCATED, CYCLE)),
        ],
    );
    report.add_notes([
        "A test's work, in four statements: three rows in each of 3 of the 30 tables, and a value of a sequence.",
        "Cycles include the connection: through the gateway over TCP with a password, by hand over the server's own \
         unix socket. With TRUNCATE it is the same database each time.",
    ]);
    report
}
