//! The `events` benchmark: appends events to a store, with one transaction per event.
//!
//! The cost of a commit matters more in this workload than in any other. The benchmark appends events in batches and
//! reports each batch's mean time per event.

#[cfg(feature = "mongodb")]
mod document_store;
mod event;
#[cfg(all(test, feature = "mongodb"))]
mod fake_document_server;
#[cfg(all(test, feature = "mongodb"))]
mod ferretdb;
mod report;
mod sql_store;
mod store;
mod target;

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ::report::{Contender, PhaseTimes, Progress, Report, Rounds, Sample, Timed, Unit};
use template::ServerOptions;

use crate::{BenchError, Measured, environment, time_and_report};
use event::Event;

use store::Store;
use target::EventsFixture;
pub use target::{EventStore, ParseEventStoreError};

/// Number of batches before the measurement, to warm up connections, the page cache and plans. The report lists these
/// batches separately.
const WARM_UP: u32 = 1;
/// How often to read the clock without appending an event, to determine the measurement's own overhead.
const EMPTY_MEASUREMENTS: u32 = 10_000;
/// Minimum interval between two readings of the disk's temperature, because each reading disturbs the disk.
const MIN_READING_INTERVAL: Duration = Duration::from_secs(1);

/// The benchmark's options.
#[allow(missing_debug_implementations)]
pub struct Events<'a> {
    /// Options for the servers started by the benchmark.
    pub server_options: ServerOptions,
    /// The cache directory, if the user specified one.
    pub cache: Option<PathBuf>,
    /// A pgfresh executable that can act as a guard; see [`server::Guard::over`].
    pub program: PathBuf,
    /// A directory on the disk to test. Defaults to where pgfresh would put a server's data on disk.
    pub disk: Option<PathBuf>,
    /// The targets for the events. They take turns, receiving one batch at a time. With a single target, batches follow
    /// each other without a pause.
    pub targets: Vec<EventStore>,
    /// The number of events in a batch.
    pub batch: u32,
    /// Returns the disk's temperature in degrees Celsius, or `None` if the disk has no sensor.
    pub thermometer: &'a dyn Fn() -> Option<f64>,
}

/// One target's measurements.
pub(crate) struct TargetSamples {
    pub(crate) name: String,
    /// Duration of each event, in seconds.
    pub(crate) each: Sample,
    /// Mean time per event in the warm-up batch, in seconds.
    pub(crate) warm_up: Option<f64>,
    /// The disk's temperature at the end of each batch.
    pub(crate) degrees: Vec<Option<f64>>,
}

impl Events<'_> {
    /// Appends one batch to each target in turn, until every target has received `batches` batches.
    ///
    /// # Errors
    /// Returns an error if there are no results at all, for example because a target is unreachable.
    pub fn measure(&self, batches: u32, progress: &dyn Progress) -> Result<Measured, BenchError> {
        let load = environment::load_averages();
        let mut fixtures = Vec::new();
        for target in &self.targets {
            fixtures.push(EventsFixture::of(target, self)?);
        }
        let measured = self.measure_on(&mut fixtures, &load, batches, progress);
        // Close all fixtures, even if closing one of them fails.
        let ends = fixtures.into_iter().map(EventsFixture::close).fold(Ok(()), Result::and);
        measured.map(|(report, failure)| (report, failure.or(ends.err())))
    }

    fn measure_on(
        &self,
        fixtures: &mut [EventsFixture],
        load: &str,
        batches: u32,
        progress: &dyn Progress,
    ) -> Result<Measured, BenchError> {
        let tracks: Vec<_> =
            fixtures.iter().map(|fixture| RefCell::new(TargetSamples::new(fixture.name()))).collect();
        let thermometer = Thermometer { read: self.thermometer, last: RefCell::new(None) };
        let mut contenders = Vec::new();
        for (fixture, track) in fixtures.iter_mut().zip(&tracks) {
            contenders.push(self.contender(fixture, track, &thermometer)?);
        }
        let mut notes: Vec<String> = fixtures.iter().map(|fixture| fixture.event().to_owned()).collect();
        notes.sort();
        notes.dedup();
        notes.extend(fixtures.iter().map(EventsFixture::describe));
        let overhead = clock_overhead();
        let report = |timed: &[Timed]| -> Report {
            let tracks: Vec<_> = tracks.iter().map(RefCell::borrow).collect();
            let tracks: Vec<&TargetSamples> = tracks.iter().map(|track| &**track).collect();
            let mut report = report::of(timed, &tracks, self.batch);
            report.add_notes(&notes);
            report.add_notes([format!("Reading the clock takes {overhead:.0} ns of each event.")]);
            environment::machine(&mut report, load);
            report
        };
        Ok(time_and_report(Rounds::new(WARM_UP, batches), contenders, progress, &report))
    }

    fn contender<'a>(
        &'a self,
        fixture: &mut EventsFixture,
        track: &'a RefCell<TargetSamples>,
        thermometer: &'a Thermometer<'a>,
    ) -> Result<Contender<'a, BenchError>, BenchError> {
        let mut store = fixture.open()?;
        let name = track.borrow().name.clone();
        let mut serial = 0;
        Ok(Contender::new(name, move || -> Result<PhaseTimes, BenchError> {
            let mut batch = Vec::with_capacity(self.batch as usize);
            for _ in 0..self.batch {
                serial += 1;
                batch.push(append(store.as_mut(), &Event::new(serial))?);
            }
            let mean = batch.iter().sum::<Duration>() / self.batch;
            track.borrow_mut().add_batch(&batch, mean, thermometer.read());
            Ok(vec![("an event", mean)])
        }))
    }
}

/// Appends one event, returning how long the store took.
fn append(store: &mut dyn Store, event: &Event) -> Result<Duration, BenchError> {
    let begun = Instant::now();
    store.append(event)?;
    Ok(begun.elapsed())
}

impl TargetSamples {
    fn new(name: String) -> Self {
        let each = Sample::new(name.clone(), Unit::Seconds);
        Self { name, each, warm_up: None, degrees: Vec::new() }
    }

    fn add_batch(&mut self, batch: &[Duration], mean: Duration, degrees: Option<f64>) {
        if self.warm_up.is_none() {
            self.warm_up = Some(mean.as_secs_f64());
            return;
        }
        self.degrees.push(degrees);
        for taken in batch {
            self.each.push(taken.as_secs_f64()).expect("a duration is finite");
        }
    }
}

/// A temperature sensor that repeats its last value until [`MIN_READING_INTERVAL`] has passed.
struct Thermometer<'a> {
    read: &'a dyn Fn() -> Option<f64>,
    last: RefCell<Option<(Instant, Option<f64>)>>,
}

impl Thermometer<'_> {
    fn read(&self) -> Option<f64> {
        let mut last = self.last.borrow_mut();
        match *last {
            Some((when, degrees)) if when.elapsed() < MIN_READING_INTERVAL => degrees,
            _ => {
                let degrees = (self.read)();
                *last = Some((Instant::now(), degrees));
                degrees
            }
        }
    }
}

/// Returns how long reading the clock twice takes, in nanoseconds.
fn clock_overhead() -> f64 {
    let begun = Instant::now();
    for _ in 0..EMPTY_MEASUREMENTS {
        std::hint::black_box(std::hint::black_box(Instant::now()).elapsed());
    }
    begun.elapsed().as_secs_f64() * 1e9 / f64::from(EMPTY_MEASUREMENTS)
}
