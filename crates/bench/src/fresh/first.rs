//! Measures how fast a server hands out its first databases. A test suite requests these right after the server has
//! started, when hardly any database is ready.

use std::cell::RefCell;
use std::fs;
use std::time::{Duration, Instant};

use lease::NEEDED_COPIES_NOTE;
use report::{Contender, PhaseTimes, Quantity, Report, Sample, Table, Timed, Unit};

use server::Guard;
use storage::{Account, Attempt, Cache, Place, PlaceRequest};
use template::ProvisionError;

use super::report::count;
use super::{Fresh, add_goals, obtain, sample};
use crate::BenchError;
use crate::fixture::{Fixture, NO_LINGER, template_in};
use crate::goal::{Goal, Limit};
use crate::summary::add_samples;

/// Number of databases to request from each server.
const DATABASES_PER_SERVER: u32 = 100;
/// Interval between requests in patterns with pauses.
const REQUEST_INTERVAL: Duration = Duration::from_millis(50);
/// Minimum time a test runner needs before its first request.
const MIN_RUNNER_START: Duration = Duration::from_millis(300);
/// Time that a typical test runner needs to import its tests before its first request.
const RUNNER_START: Duration = Duration::from_secs(1);
/// Maximum time until the pool's first databases are ready.
const READY_TIMEOUT: Duration = Duration::from_mins(1);

/// Space for the template's cache, in bytes.
const CACHE_SPACE: u64 = 200 << 20;

/// A pattern that test suites follow when they request their first databases.
#[derive(Debug, Clone, Copy)]
struct RequestPattern {
    name: &'static str,
    parameters: &'static [(&'static str, &'static str)],
    /// Pause between the moment when the server's first database is ready and the first request.
    start: Duration,
    pace: Duration,
    /// True if a server has played this pattern before, so that the cache entry contains the number of copies needed.
    is_second_run: bool,
    /// True if the pool has to copy every database because no test releases its database in time for another test.
    copies_all: bool,
}

const AT_ONCE: RequestPattern = RequestPattern {
    name: "linger 0, back to back",
    parameters: &[NO_LINGER],
    start: Duration::ZERO,
    pace: Duration::ZERO,
    is_second_run: false,
    copies_all: false,
};

/// A suite that connects by name, with the default linger time and a test runner that takes a second to start.
const SUITE: RequestPattern = RequestPattern {
    name: "linger 5 s, back to back, 1 s later, first run",
    parameters: &[],
    copies_all: true,
    start: RUNNER_START,
    ..AT_ONCE
};

const PATTERNS: [RequestPattern; 7] = [
    AT_ONCE,
    RequestPattern { name: "linger 0, back to back, 0.3 s later", start: MIN_RUNNER_START, ..AT_ONCE },
    RequestPattern { name: "linger 0, 20 a second", pace: REQUEST_INTERVAL, ..AT_ONCE },
    RequestPattern { name: "linger 5 s, back to back", parameters: &[], copies_all: true, ..AT_ONCE },
    RequestPattern {
        name: "linger 5 s, 20 a second",
        parameters: &[],
        copies_all: true,
        pace: REQUEST_INTERVAL,
        ..AT_ONCE
    },
    SUITE,
    RequestPattern { name: "linger 5 s, back to back, 1 s later, second run", is_second_run: true, ..SUITE },
];

/// The duration of each request, by pattern.
pub(super) struct Samples(Vec<RefCell<Sample>>);

impl Default for Samples {
    fn default() -> Self {
        Self(PATTERNS.map(|manner| sample(manner.name)).into())
    }
}

/// A cache with a template that a server has already started from once.
pub(super) struct PreparedCache(Guard);

impl PreparedCache {
    /// Builds the template and starts a server from it. Like a user's earlier run, this server leaves facts about the
    /// template's files and the clients' startup parameters in the cache.
    pub(super) fn prepare(fresh: &Fresh) -> Result<Self, BenchError> {
        let cache = Cache::locate(fresh.cache.as_deref())?;
        let account = Account::ours();
        let place = Place::choose(&PlaceRequest::Auto, CACHE_SPACE, cache.root(), &account)
            .map_err(ProvisionError::from)?;
        let ground = Self(Guard::over(&place, &account, &fresh.program)?);
        let fixture = ground.fixture(fresh)?;
        // pgfresh reads the template's files during the second copy, so wait for that before any client connects.
        wait_for_pool(&fixture, 2);
        for manner in &PATTERNS {
            obtain(&fixture, manner.parameters)?;
        }
        fixture.close();
        Ok(ground)
    }

    /// Removes earlier servers' notes about how many copies they needed.
    fn forget_needed_copies(&self) -> Result<(), BenchError> {
        let images = self.0.run().path().join("cache/images");
        for image in fs::read_dir(&images).attempt("read", &images)?.flatten() {
            let Ok(files) = fs::read_dir(image.path()) else { continue };
            for path in files.flatten().map(|file| file.path()) {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                if name.starts_with(NEEDED_COPIES_NOTE) {
                    fs::remove_file(&path).attempt("remove", &path)?;
                }
            }
        }
        Ok(())
    }

    /// Starts a server from the prepared template.
    pub(super) fn fixture(&self, fresh: &Fresh) -> Result<Fixture, BenchError> {
        let folder = self.0.run().path();
        let (template, cache) = (template_in(folder)?, folder.join("cache"));
        Fixture::of_template(&fresh.server_options, template, &cache, fresh.program.clone())
    }
}

pub(super) fn contenders<'a>(
    fresh: &'a Fresh,
    ground: &'a PreparedCache,
    samples: &'a Samples,
) -> Vec<Contender<'a, BenchError>> {
    let contender = |(manner, sample): (&'static RequestPattern, &'a RefCell<Sample>)| {
        Contender::new(manner.name, move || measure_pattern(fresh, ground, manner, sample))
    };
    PATTERNS.iter().zip(&samples.0).map(contender).collect()
}

/// Starts a server, waits until a database is ready, and requests the first databases in one pattern.
fn measure_pattern(
    fresh: &Fresh,
    ground: &PreparedCache,
    manner: &RequestPattern,
    sample: &RefCell<Sample>,
) -> Result<PhaseTimes, BenchError> {
    ground.forget_needed_copies()?;
    if manner.is_second_run {
        play(fresh, ground, manner)?;
    }
    let taken = play(fresh, ground, manner)?;
    for taken in &taken {
        sample.borrow_mut().push(taken.as_secs_f64()).expect("a duration is finite");
    }
    Ok(vec![("a database", taken.iter().sum::<Duration>() / DATABASES_PER_SERVER)])
}

/// Starts a server, sends it a pattern's requests, and returns each request's duration.
fn play(fresh: &Fresh, ground: &PreparedCache, manner: &RequestPattern) -> Result<Vec<Duration>, BenchError> {
    let fixture = ground.fixture(fresh)?;
    wait_for_pool(&fixture, 1);
    std::thread::sleep(manner.start);
    let mut all = Vec::new();
    for _ in 0..DATABASES_PER_SERVER {
        let begun = Instant::now();
        all.push(obtain(&fixture, manner.parameters)?);
        std::thread::sleep(manner.pace.saturating_sub(begun.elapsed()));
    }
    fixture.close();
    Ok(all)
}

fn wait_for_pool(fixture: &Fixture, databases: usize) {
    let begun = Instant::now();
    while fixture.leases.status().ready.iter().all(|(_, ready)| *ready < databases)
        && begun.elapsed() < READY_TIMEOUT
    {
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(super) fn report(timed: &[Timed], samples: &Samples) -> Report {
    let mut report = Report::new("The first 100 databases of a server, and the first query of each");
    let columns = ["least", "median", "p95", "p99", "most", "p99 × the median", "count"];
    let mut table = Table::numbers("One after another, from the first that is ready", "how", columns);
    for sample in &samples.0 {
        let sample = sample.borrow();
        table.add_row([
            sample.name().into(),
            sample.min().into(),
            sample.median().into(),
            sample.percentile(95.0).into(),
            sample.percentile(99.0).into(),
            sample.max().into(),
            tail(&sample).into(),
            count(&sample).into(),
        ]);
    }
    report.add_table(table);
    add_samples(&mut report, timed);
    let second_run = |(manner, sample): (&RequestPattern, &RefCell<Sample>)| {
        let (most, measured) = (Quantity::new(0.003, Unit::Seconds), sample.borrow().median());
        let what = format!("{}: median", manner.name).into();
        manner.is_second_run.then_some(Goal { what, limit: Limit::AtMost(most), measured })
    };
    let second_runs: Vec<_> = PATTERNS.iter().zip(&samples.0).filter_map(second_run).collect();
    let limits = PATTERNS.iter().zip(&samples.0).flat_map(|(manner, sample)| {
        let sample = sample.borrow();
        let (five, eight) = (Quantity::new(5.0, Unit::Ratio), Quantity::new(0.008, Unit::Seconds));
        let goal =
            |what: String, most, measured| Goal { what: what.into(), limit: Limit::AtMost(most), measured };
        [
            goal(format!("{}: p99 × the median", manner.name), five, tail(&sample)),
            goal(format!("{}: p99", manner.name), eight, sample.percentile(99.0)),
        ]
    });
    add_goals(&mut report, limits.chain(second_runs).collect::<Vec<_>>());
    let copied: Vec<_> =
        PATTERNS.iter().filter(|manner| manner.copies_all).map(|manner| manner.name).collect();
    report.add_notes([
        format!("Each round starts a server of its own and obtains {DATABASES_PER_SERVER} databases over TCP, with a \
        password."),
        "All of them start from a template in the cache that has been used before, by clients with the same startup \
        parameters.".to_owned(),
        format!(
            "{}: each database outlives the next requests, so each is a new copy. If it is not made ahead, the rate is that \
            of copying.",
            copied.join("; ")
        ),
        "In a first run, the cache entry does not say how many copies to make ahead. In a second run, a server with the same \
        requests has noted it.".to_owned(),
    ]);
    report
}

/// Returns the 99th percentile as a multiple of the median.
fn tail(sample: &Sample) -> Option<Quantity> {
    let (tail, median) = (sample.percentile(99.0)?, sample.median()?);
    Some(Quantity::new(tail.value / median.value, Unit::Ratio))
}
