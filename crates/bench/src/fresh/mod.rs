//! The `fresh` benchmark: provides a new database for each test.
//!
//! Fresh databases are pgfresh's purpose. The benchmark compares the gateway's databases with databases that users
//! create by hand on the same server.

mod burst;
mod echo;
mod first;
mod http;
mod minimal_gateway;
mod paced;
mod pools;
mod recycle;
mod report;
mod rollback;
mod sustained;
mod tables;

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ::report::{PhaseTimes, Progress, Report, Rounds, Sample, Timed, Unit};
use server::{AdminConnection, Major};
use template::ServerOptions;

use crate::client::Address;
use crate::fixture::{DEFAULT_TABLES, Fixture, MANUAL_DATABASE};
use crate::{BenchError, Measured, time_and_report};

/// The first query in each session.
const QUERY: &str = "SELECT count(*) FROM t1";
/// Number of rounds before the measurement, to fill the pool and the page cache.
const WARM_UP: u32 = 1;

/// The benchmark's options. The template in the server options is ignored; the benchmark creates one with 30 tables
/// instead. [`Self::measure_tables`] creates one template for each number of tables to compare.
#[derive(Debug)]
pub struct Fresh {
    /// The options for the server.
    pub server_options: ServerOptions,
    /// The cache directory, if the user specified one.
    pub cache: Option<PathBuf>,
    /// A pgfresh executable that can act as a guard; see [`server::Guard::over`].
    pub program: PathBuf,
}

impl Fresh {
    /// Measures how long a new database takes when databases are requested one after another, many concurrently, and
    /// at the maximum rate. Runs `rounds` rounds.
    ///
    /// # Errors
    /// Returns an error if there are no results at all.
    pub fn measure(&self, rounds: u32, progress: &dyn Progress) -> Result<Measured, BenchError> {
        let fixture = self.fixture()?;
        let (samples, http_samples) = (paced::Samples::default(), http::Samples::default());
        let floor = minimal_gateway::MinimalGateway::open(&fixture)?;
        let mut contenders = paced::contenders(&fixture, &floor, &samples)?;
        contenders.extend(burst::contenders(&fixture)?);
        contenders.extend(sustained::contenders(&fixture)?);
        contenders.extend(http::contenders(&fixture, &http_samples));
        Rounds::new(WARM_UP, 0).run(&mut contenders, progress, drop)?;
        samples.discard_warm_up();
        http_samples.discard_warm_up();
        let before = fixture.leases.status();
        let report = |timed: &[Timed]| {
            let mut report = report::of(timed, &samples, &http_samples);
            let now = fixture.leases.status();
            report.add_notes([format!(
                "Of the sessions through the gateway, {} found a backend waiting and {} did not.",
                now.warm - before.warm,
                now.cold - before.cold,
            )]);
            fixture.describe(&mut report);
            report
        };
        let (mut timed, end) = Rounds::new(0, rounds).time(&mut contenders, progress, Some(&report));
        drop(contenders);
        // These contenders run last and separately. They would disturb the others, because the pool keeps backends
        // ready for the most recent startup parameters.
        let mut strangers = paced::new_parameter_contenders(&fixture, &samples);
        let (strange, strange_end) = match &end {
            Ok(()) => Rounds::new(0, rounds).time(&mut strangers, progress, None),
            Err(_) => (Vec::new(), Ok(())),
        };
        drop(strangers);
        timed.extend(strange);
        let report = report(&timed);
        fixture.close();
        Ok((report, end.and(strange_end).err()))
    }

    /// Measures how long it takes to reset a used database, and to run a complete cycle, in which a test gets, uses and
    /// releases a database.
    ///
    /// # Errors
    /// Returns an error if there are no results at all.
    pub fn measure_recycling(&self, rounds: u32, progress: &dyn Progress) -> Result<Measured, BenchError> {
        let fixture = self.fixture()?;
        let samples = recycle::Samples::default();
        let mut contenders = recycle::contenders(&fixture, &samples)?;
        Rounds::new(WARM_UP, 0).run(&mut contenders, progress, drop)?;
        samples.discard_warm_up();
        let report = |timed: &[Timed]| {
            let mut report = recycle::report(timed, &samples);
            let status = fixture.leases.status();
            let dropped = status.dropped.iter().map(|(why, count)| format!("{count} ({why})"));
            let dropped = dropped.reduce(|all, more| format!("{all}, {more}")).unwrap_or("none".to_owned());
            let recycled = status.recycled.0;
            report.add_notes([format!("{recycled} databases were recycled; dropped instead: {dropped}.")]);
            fixture.describe(&mut report);
            report
        };
        let measured = time_and_report(Rounds::new(0, rounds), contenders, progress, &report);
        fixture.close();
        Ok(measured)
    }

    /// Measures the first hundred databases of new servers, in `rounds` rounds. In each round, each request pattern has
    /// its own server.
    ///
    /// # Errors
    /// Returns an error if there are no results at all.
    pub fn measure_first(&self, rounds: u32, progress: &dyn Progress) -> Result<Measured, BenchError> {
        let samples = first::Samples::default();
        let ground = first::PreparedCache::prepare(self)?;
        let described = ground.fixture(self)?;
        let contenders = first::contenders(self, &ground, &samples);
        let report = |timed: &[Timed]| {
            let mut report = first::report(timed, &samples);
            described.describe(&mut report);
            report
        };
        let measured = time_and_report(Rounds::new(0, rounds), contenders, progress, &report);
        described.close();
        Ok(measured)
    }

    /// Measures tests with a single session in rollback isolation, in comparison with tests that each have a database
    /// and with tests that use BEGIN and ROLLBACK by hand. `rounds` is the number of rounds that count.
    ///
    /// # Errors
    /// Returns an error if there are no results at all.
    pub fn measure_rollback(&self, rounds: u32, progress: &dyn Progress) -> Result<Measured, BenchError> {
        let fixture = self.fixture()?;
        let contenders = rollback::contenders(&fixture)?;
        let report = |timed: &[Timed]| {
            let mut report = rollback::report(timed);
            fixture.describe(&mut report);
            report
        };
        let measured = time_and_report(Rounds::new(WARM_UP, rounds), contenders, progress, &report);
        fixture.close();
        Ok(measured)
    }

    /// Measures databases with a single session and with a pool of sessions, requested by one worker and by
    /// many workers.
    ///
    /// # Errors
    /// Returns an error if there are no results at all.
    pub fn measure_pools(&self, rounds: u32, progress: &dyn Progress) -> Result<Measured, BenchError> {
        let fixture = self.fixture()?;
        let echo = echo::EchoServer::open()?;
        let lines = pools::Line::all();
        let mut contenders = pools::contenders(&fixture, &echo, &lines)?;
        Rounds::new(WARM_UP, 0).run(&mut contenders, progress, drop)?;
        lines.iter().for_each(pools::Line::discard_warm_up);
        let report = |timed: &[Timed]| {
            let mut report = pools::report(timed, &lines);
            fixture.describe(&mut report);
            report
        };
        let measured = time_and_report(Rounds::new(0, rounds), contenders, progress, &report);
        fixture.close();
        Ok(measured)
    }

    /// Measures how long resets take with templates of `sizes` tables, after tests that write to few or many of
    /// these tables.
    ///
    /// # Errors
    /// Returns an error if there are no results at all.
    pub fn measure_tables(
        &self,
        sizes: &[u32],
        rounds: u32,
        progress: &dyn Progress,
    ) -> Result<Measured, BenchError> {
        let servers = tables::Server::open_all(self, sizes)?;
        let samples = tables::Samples::new(sizes);
        let mut contenders = tables::contenders(&servers, &samples)?;
        Rounds::new(WARM_UP, 0).run(&mut contenders, progress, drop)?;
        samples.discard_warm_up();
        let report = |timed: &[Timed]| {
            let mut report = tables::report(timed, &samples, &servers);
            tables::describe(&servers, &mut report);
            report
        };
        let measured = time_and_report(Rounds::new(0, rounds), contenders, progress, &report);
        servers.into_iter().for_each(tables::Server::close);
        Ok(measured)
    }

    fn fixture(&self) -> Result<Fixture, BenchError> {
        self.fixture_of(DEFAULT_TABLES)
    }

    fn fixture_of(&self, tables: u32) -> Result<Fixture, BenchError> {
        Fixture::open(&self.server_options, self.cache.as_deref(), self.program.clone(), tables)
    }
}

/// How CREATE DATABASE copies a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strategy {
    /// The server's default: WAL copies since PostgreSQL 15, file copies in older versions.
    Default,
    /// File copies, available as an option since PostgreSQL 15.
    Files,
}

impl Strategy {
    /// Returns the strategies supported by a major version.
    fn all(major: u32) -> &'static [Self] {
        if Major(major).has_create_strategy() { &[Self::Default, Self::Files] } else { &[Self::Default] }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Default => "by hand: CREATE DATABASE",
            Self::Files => "by hand: CREATE DATABASE … STRATEGY FILE_COPY",
        }
    }

    /// Returns the fastest strategy supported by a major version.
    fn best(major: u32) -> Self {
        if Major(major).has_create_strategy() { Self::Files } else { Self::Default }
    }

    fn create(self, admin: &mut AdminConnection, name: &str) -> Result<(), BenchError> {
        let strategy = if self == Self::Files { " STRATEGY FILE_COPY" } else { "" };
        admin.query(&format!("CREATE DATABASE {name} TEMPLATE {MANUAL_DATABASE}{strategy}"))?;
        Ok(())
    }
}

/// Connects to the gateway under an unused database name, so that the gateway has to provide a new database, and runs
/// the first query. Returns how long both steps took, without closing the session.
fn obtain(fixture: &Fixture, parameters: &[(&str, &str)]) -> Result<Duration, BenchError> {
    obtain_at(&fixture.gateway(), fixture, parameters)
}

/// Like [`obtain`], but connects to any address.
fn obtain_at(
    address: &Address,
    fixture: &Fixture,
    parameters: &[(&str, &str)],
) -> Result<Duration, BenchError> {
    let name = fixture.new_name();
    let begun = Instant::now();
    let mut client = address.connect(&name, parameters)?;
    client.query(QUERY)?;
    let taken = begun.elapsed();
    client.close()?;
    Ok(taken)
}

/// Creates a database by hand, connects to it and runs the first query. Returns how long these steps took, without
/// dropping the database.
fn obtain_by_hand(
    fixture: &Fixture,
    admin: &mut AdminConnection,
    strategy: Strategy,
) -> Result<Duration, BenchError> {
    let (address, name) = (fixture.socket(), fixture.new_name());
    let begun = Instant::now();
    strategy.create(admin, &name)?;
    let mut client = address.connect(&name, &[])?;
    client.query(QUERY)?;
    let taken = begun.elapsed();
    client.close()?;
    admin.query(&format!("DROP DATABASE {name}"))?;
    Ok(taken)
}

/// Runs `step` `count` times, adding each duration to `sample`. Returns the mean duration.
fn repeat(
    sample: &RefCell<Sample>,
    count: u32,
    mut step: impl FnMut() -> Result<Duration, BenchError>,
) -> Result<PhaseTimes, BenchError> {
    let mut sum = Duration::ZERO;
    for _ in 0..count {
        let taken = step()?;
        sum += taken;
        sample.borrow_mut().push(taken.as_secs_f64()).expect("a duration is finite");
    }
    Ok(vec![("mean", sum / count)])
}

fn sample(name: &str) -> RefCell<Sample> {
    RefCell::new(Sample::new(name, Unit::Seconds))
}

/// Removes all values from a sample.
fn clear(sample: &RefCell<Sample>) {
    let empty = Sample::new(sample.borrow().name(), Unit::Seconds);
    sample.replace(empty);
}

/// Adds a table of the goals to the report.
fn add_goals(report: &mut Report, goals: impl IntoIterator<Item = crate::goal::Goal>) {
    report.add_table(crate::goal::table(goals));
}
