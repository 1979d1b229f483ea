//! Measures how a reset's duration depends on how many tables the template has and on how many of these tables a
//! test wrote to.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use lease::Isolation;
use report::{Column, Contender, Quantity, Report, Sample, Table, Timed, Unit};
use server::AdminConnection;

use super::recycle::time_reset;
use super::{Fresh, Strategy, add_goals, clear, repeat, sample};
use crate::BenchError;
use crate::fixture::Fixture;
use crate::goal::{Goal, Limit};
use crate::summary::{add_samples, ratio};

/// Numbers of tables that a test writes to.
const WRITTEN_TABLES: [u32; 3] = [1, 10, 100];
/// Largest number of tables that has a goal.
const MAX_TABLES_WITH_GOAL: u32 = 3_000;
/// Number of resets per round.
const RESETS_PER_ROUND: u32 = 10;
/// Maximum time until the pool stops copying.
const SETTLE_TIMEOUT: Duration = Duration::from_mins(2);

/// A server whose template has `tables` tables, along with how long the first database took.
pub(super) struct Server {
    tables: u32,
    fixture: Fixture,
    /// Name of the lease whose database the gateway resets.
    name: String,
    /// Name of the database to clean up by hand.
    by_hand: String,
    /// Times to create the tables, to copy the template by hand, and to reset a database for the first time.
    first: [Duration; 3],
}

impl Server {
    /// Opens a server for each number of tables and waits until all servers' pools are idle.
    pub(super) fn open_all(fresh: &Fresh, sizes: &[u32]) -> Result<Vec<Self>, BenchError> {
        sizes.iter().map(|tables| Self::open(fresh, *tables)).collect()
    }

    fn open(fresh: &Fresh, tables: u32) -> Result<Self, BenchError> {
        let fixture = fresh.fixture_of(tables)?;
        fixture.leases.settle(SETTLE_TIMEOUT);
        let by_hand = fixture.new_name();
        let begun = Instant::now();
        Strategy::best(fixture.major()).create(&mut fixture.admin()?, &by_hand)?;
        let copied = begun.elapsed();
        let name = fixture.leases.lease(Isolation::Clone, None, None)?.0;
        let first_reset = time_reset(&fixture, &name, &[&write_statements(tables, 1)])?;
        fixture.leases.settle(SETTLE_TIMEOUT);
        Ok(Self { tables, name, by_hand, first: [fixture.built, copied, first_reset], fixture })
    }

    pub(super) fn close(self) {
        self.fixture.close();
    }
}

/// Yields the numbers of the tables to write to, spread evenly over all tables.
fn written_tables(tables: u32, count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(move |number| number * (tables / count) + 1)
}

fn write_statements(tables: u32, count: u32) -> String {
    let row = |table| format!("INSERT INTO t{table} (name) VALUES ('a')");
    written_tables(tables, count).map(row).collect::<Vec<_>>().join(";")
}

/// The samples for one combination of the number of tables in the template and the number of tables a test writes to.
struct Row {
    tables: u32,
    touched: u32,
    ours: RefCell<Sample>,
    by_hand: RefCell<Sample>,
}

/// The duration of each reset.
pub(super) struct Samples(Vec<Row>);

impl Samples {
    pub(super) fn new(sizes: &[u32]) -> Self {
        let pairs = sizes.iter().flat_map(|tables| WRITTEN_TABLES.map(|touched| (*tables, touched)));
        let row = |(tables, touched)| Row {
            tables,
            touched,
            ours: sample(&reset_contender(tables, touched)),
            by_hand: sample(&delete_contender(tables, touched)),
        };
        Self(pairs.filter(|(tables, touched)| touched <= tables).map(row).collect())
    }

    /// Returns the smallest number of tables in a template, among the rows with the same number of written tables.
    fn min_tables(&self, row: &Row) -> u32 {
        let alike = self.0.iter().filter(|other| other.touched == row.touched);
        alike.map(|other| other.tables).min().unwrap_or(row.tables)
    }

    /// Discards the warm-up's values.
    pub(super) fn discard_warm_up(&self) {
        self.0.iter().flat_map(|row| [&row.ours, &row.by_hand]).for_each(clear);
    }
}

fn reset_contender(tables: u32, touched: u32) -> String {
    format!("reset by pgfresh: {tables} tables, {touched} written to")
}

fn delete_contender(tables: u32, touched: u32) -> String {
    format!("by hand: DELETE from {touched} of {tables} tables")
}

pub(super) fn contenders<'a>(
    servers: &'a [Server],
    samples: &'a Samples,
) -> Result<Vec<Contender<'a, BenchError>>, BenchError> {
    let mut contenders = Vec::new();
    for row in &samples.0 {
        let Some(server) = servers.iter().find(|server| server.tables == row.tables) else { continue };
        let (insert, delete) =
            (write_statements(row.tables, row.touched), delete_statements(row.tables, row.touched));
        let statements = [insert.clone()];
        contenders.push(Contender::new(row.ours.borrow().name(), move || {
            repeat(&row.ours, RESETS_PER_ROUND, || time_reset(&server.fixture, &server.name, &statements))
        }));
        let mut session = server.fixture.server.session(&server.by_hand)?;
        contenders.push(Contender::new(row.by_hand.borrow().name(), move || {
            repeat(&row.by_hand, RESETS_PER_ROUND, || time_delete(&mut session, &insert, &delete))
        }));
    }
    Ok(contenders)
}

/// Returns statements that undo a test's writes. They avoid TRUNCATE, which would also empty the tables that refer to
/// the written tables.
fn delete_statements(tables: u32, count: u32) -> String {
    let undo = |table| format!("DELETE FROM t{table}; SELECT setval('t{table}_id_seq', 1, false)");
    written_tables(tables, count).map(undo).collect::<Vec<_>>().join(";")
}

fn time_delete(session: &mut AdminConnection, insert: &str, delete: &str) -> Result<Duration, BenchError> {
    session.query(insert)?;
    let begun = Instant::now();
    session.query(delete)?;
    Ok(begun.elapsed())
}

/// Adds a description of the machine and of the first server.
pub(super) fn describe(servers: &[Server], report: &mut Report) {
    if let Some(server) = servers.first() {
        server.fixture.describe(report);
    }
}

pub(super) fn report(timed: &[Timed], samples: &Samples, servers: &[Server]) -> Report {
    let mut report = Report::new("A reset, with few tables and with many");
    let columns =
        ["written to", "median", "p95", "most", "× with the fewest tables", "DELETE from these, by hand"];
    let columns = std::iter::once(Column::right("tables")).chain(columns.map(Column::right));
    let mut table = Table::new("Ready again", columns);
    for row in &samples.0 {
        let (ours, by_hand) = (row.ours.borrow(), row.by_hand.borrow());
        table.add_row([
            row.tables.to_string().into(),
            row.touched.to_string().into(),
            ours.median().into(),
            ours.percentile(95.0).into(),
            ours.max().into(),
            relative_time(timed, samples, row).into(),
            by_hand.median().into(),
        ]);
    }
    report.add_table(table);
    let columns = ["its tables made by SQL", "a copy by hand", "the first reset", "copies of the pool, each"];
    let columns = std::iter::once(Column::right("tables")).chain(columns.map(Column::right));
    let mut table = Table::new("The first use of a template", columns);
    for server in servers {
        let seconds = |time: Duration| Quantity::new(time.as_secs_f64(), Unit::Seconds);
        let (made, sum) = server.fixture.leases.status().created;
        let each = u32::try_from(made).ok().and_then(|made| sum.checked_div(made));
        let [built, copied, reset] = server.first.map(seconds);
        table.add_row([
            server.tables.to_string().into(),
            built.into(),
            copied.into(),
            reset.into(),
            each.map(seconds).into(),
        ]);
    }
    report.add_table(table);
    add_samples(&mut report, timed);
    let most = Quantity::new(1.5, Unit::Ratio);
    let bounded = samples
        .0
        .iter()
        .filter(|row| row.tables <= MAX_TABLES_WITH_GOAL && row.tables > samples.min_tables(row));
    let bounded = bounded.map(|row| Goal {
        what: format!("{} tables, {} written to: × with the fewest", row.tables, row.touched).into(),
        limit: Limit::AtMost(most),
        measured: relative_time(timed, samples, row),
    });
    add_goals(&mut report, bounded.collect::<Vec<_>>());
    report.add_notes([
        "A test's work: one row in each table that is written to, in one message, over TCP through the gateway. By hand: DELETE \
         and setval() for the very tables, which a suite would have to know, over the server's socket.",
        "Copies of the pool are made in the background, two at once while a client waits. In the second one pgfresh reads what resets need to know of the template; the first reset waits for that.",
    ]);
    report
}

/// Returns the duration of a reset as a multiple of the duration with the smallest template, after writes to the same
/// number of tables.
fn relative_time(timed: &[Timed], samples: &Samples, row: &Row) -> Option<Quantity> {
    ratio(
        timed,
        &reset_contender(row.tables, row.touched),
        &reset_contender(samples.min_tables(row), row.touched),
    )
}
