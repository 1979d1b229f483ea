//! `fresh`: a database for each test, through the gateway and by hand on the same server.

mod burst;
mod first;
mod floor;
mod paced;
mod recycle;
mod report;
mod rollback;
mod sustained;
mod tables;

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ::report::{PhaseTimes, Progress, Report, Rounds, Sample, Timed, Unit};
use server::AdminConnection;
use template::ServerOptions;

use crate::client::Address;
use crate::fixture::{BY_HAND, Fixture, TABLES};
use crate::{BenchError, Measured};

/// The first query of a session.
const QUERY: &str = "SELECT count(*) FROM t1";
/// Rounds for nothing, until pool and page cache have settled.
const WARM_UP: u32 = 1;

/// The bench and what it needs of its caller. The template has 30 tables unless it is about their number, whatever template the
/// options name.
#[derive(Debug)]
pub struct Fresh {
    /// The options of the server.
    pub server_options: ServerOptions,
    /// The cache that was chosen, if one was.
    pub cache: Option<PathBuf>,
    /// A pgfresh that can be a guard; see [`server::Guard::over`].
    pub program: PathBuf,
}

impl Fresh {
    /// Measures how long a new database takes, in each of so many rounds: one after another, many at once, and as
    /// many as there can be.
    ///
    /// # Errors
    /// Nothing was measured at all.
    pub fn measure(&self, rounds: u32, progress: &dyn Progress) -> Result<Measured, BenchError> {
        let fixture = self.fixture()?;
        let samples = paced::Samples::default();
        let floor = floor::Floor::open(&fixture)?;
        let mut contenders = paced::contenders(&fixture, &floor, &samples)?;
        contenders.extend(burst::contenders(&fixture)?);
        contenders.extend(sustained::contenders(&fixture)?);
        Rounds::new(WARM_UP, 0).run(&mut contenders, progress, drop)?;
        samples.forget();
        let before = fixture.leases.status();
        let report = |timed: &[Timed]| {
            let mut report = report::of(timed, &samples);
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
        // By themselves, and last: the pool keeps sessions warm of the kinds that came last.
        let mut strangers = paced::strangers(&fixture, &samples);
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

    /// Measures how long a used database takes until it is reset, and whole cycles of obtaining, using, disposing.
    ///
    /// # Errors
    /// Nothing was measured at all.
    pub fn measure_recycling(&self, rounds: u32, progress: &dyn Progress) -> Result<Measured, BenchError> {
        let fixture = self.fixture()?;
        let samples = recycle::Samples::default();
        let mut contenders = recycle::contenders(&fixture, &samples)?;
        Rounds::new(WARM_UP, 0).run(&mut contenders, progress, drop)?;
        samples.forget();
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
        let (timed, end) = Rounds::new(0, rounds).time(&mut contenders, progress, Some(&report));
        drop(contenders);
        let report = report(&timed);
        fixture.close();
        Ok((report, end.err()))
    }

    /// Measures the first hundred databases of servers that have just started, of as many servers for each way to ask for
    /// them as there are rounds.
    ///
    /// # Errors
    /// Nothing was measured at all.
    pub fn measure_first(&self, rounds: u32, progress: &dyn Progress) -> Result<Measured, BenchError> {
        let samples = first::Samples::default();
        let ground = first::Ground::prepare(self)?;
        let described = ground.fixture(self)?;
        let mut contenders = first::contenders(self, &ground, &samples);
        let report = |timed: &[Timed]| {
            let mut report = first::report(timed, &samples);
            described.describe(&mut report);
            report
        };
        let (timed, end) = Rounds::new(0, rounds).time(&mut contenders, progress, Some(&report));
        drop(contenders);
        let report = report(&timed);
        described.close();
        Ok((report, end.err()))
    }

    /// Measures tests of one session in rollback isolation, beside databases of their own and beside BEGIN and ROLLBACK
    /// by hand.
    ///
    /// # Errors
    /// Nothing was measured at all.
    pub fn measure_rollback(&self, rounds: u32, progress: &dyn Progress) -> Result<Measured, BenchError> {
        let fixture = self.fixture()?;
        let mut contenders = rollback::contenders(&fixture)?;
        let report = |timed: &[Timed]| {
            let mut report = rollback::report(timed);
            fixture.describe(&mut report);
            report
        };
        let (timed, end) = Rounds::new(WARM_UP, rounds).time(&mut contenders, progress, Some(&report));
        drop(contenders);
        let report = report(&timed);
        fixture.close();
        Ok((report, end.err()))
    }

    /// Measures resets of databases of templates with so many tables each, of which tests have written to few or to many.
    ///
    /// # Errors
    /// Nothing was measured at all.
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
        samples.forget();
        let report = |timed: &[Timed]| {
            let mut report = tables::report(timed, &samples, &servers);
            tables::describe(&servers, &mut report);
            report
        };
        let (timed, end) = Rounds::new(0, rounds).time(&mut contenders, progress, Some(&report));
        drop(contenders);
        let report = report(&timed);
        servers.into_iter().for_each(tables::Server::close);
        Ok((report, end.err()))
    }

    fn fixture(&self) -> Result<Fixture, BenchError> {
        self.fixture_of(TABLES)
    }

    fn fixture_of(&self, tables: u32) -> Result<Fixture, BenchError> {
        Fixture::open(&self.server_options, self.cache.as_deref(), self.program.clone(), tables)
    }
}

/// How databases are made without us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strategy {
    /// What the server does unless it is told otherwise: by its WAL from 15.
    Default,
    /// By files; there is a word for that from 15.
    Files,
}

impl Strategy {
    /// Those that a server of that major offers.
    fn all(major: u32) -> &'static [Self] {
        if major >= 15 { &[Self::Default, Self::Files] } else { &[Self::Default] }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Default => "by hand: CREATE DATABASE",
            Self::Files => "by hand: CREATE DATABASE … STRATEGY FILE_COPY",
        }
    }

    /// The quickest of them.
    fn best(major: u32) -> Self {
        if major >= 15 { Self::Files } else { Self::Default }
    }

    fn create(self, admin: &mut AdminConnection, name: &str) -> Result<(), BenchError> {
        let strategy = if self == Self::Files { " STRATEGY FILE_COPY" } else { "" };
        admin.query(&format!("CREATE DATABASE {name} TEMPLATE {BY_HAND}{strategy}"))?;
        Ok(())
    }
}

/// Connects to an unused name, and asks the first query; the session is closed untimed.
fn obtain(fixture: &Fixture, parameters: &[(&str, &str)]) -> Result<Duration, BenchError> {
    obtain_at(&fixture.gateway(), fixture, parameters)
}

/// The same, for any server that listens there.
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

/// The same by hand; the database is dropped untimed.
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

/// Does it `count` times, and keeps how long each took in `sample`. Returns the mean.
fn block(
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

/// Begins anew.
fn forget(sample: &RefCell<Sample>) {
    let empty = Sample::new(sample.borrow().name(), Unit::Seconds);
    sample.replace(empty);
}

/// A table of goals.
fn goals(report: &mut Report, goals: impl IntoIterator<Item = crate::goal::Goal>) {
    report.add_table(crate::goal::table(goals));
}
