//! Samples a server until the caller stops it. The sampler has its own thread and its own session.
//!
//! A sample is a query for all non-idle sessions, which costs the server about half a millisecond. Between two samples,
//! the recorder pauses for a few milliseconds (see [`Pace`]). On a server with very many sessions, the query takes
//! longer. The pause is then a multiple of the query's duration, so that sampling never disturbs the server much.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use postgres::{Client, Row, Statement as Prepared};

use crate::ProfileError;
use crate::counters::Counters;
use crate::error::explain;
use crate::gateway_times::GatewayTimes;
use crate::interner::Interner;
use crate::machine::ProcfsSampler;
use crate::recording::{Observation, Recording, SessionName, Snapshot, State};
use crate::statement_counts::{Counted, Counts, CountsError};
use crate::target::{APPLICATION_NAME, Target, is_visible};
use crate::wait::Cause;
use pgwire::NormalizedStatement;
use server::MAJORS;

/// Timeout for the last sample and the counters. These queries also have shorter statement timeouts, but only a
/// running server enforces those.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// Number of sessions opened to measure the cost of a session.
const TRIALS: usize = 5;

/// Query for a sample. Calls the function underlying the view, because the view looks up names that a sample doesn't
/// need. Excludes pgfresh's own sessions and databases.
const SAMPLE_QUERY: &str = "SELECT /* pgfresh */ a.pid, coalesce(d.datname, ''), coalesce(a.application_name, ''), a.state, a.wait_event_type, \
    a.wait_event, coalesce(a.query, ''), coalesce(extract(epoch FROM a.query_start), 0)::float8, \
    coalesce(extract(epoch FROM a.xact_start), 0)::float8, (extract(epoch FROM a.backend_start) * 1000000)::int8, \
    coalesce(extract(epoch FROM clock_timestamp() - a.query_start), 0)::float8 \
    FROM pg_stat_get_activity(NULL) a LEFT JOIN pg_database d ON d.oid = a.datid \
    WHERE a.backend_type = 'client backend' AND a.state IS DISTINCT FROM 'idle' AND a.application_name <> $1 \
    AND d.datname NOT LIKE 'pgfresh\\_%'";

/// A function that passes on the gateway's reports since its last call (see [`GatewayTimes`]). The recorder calls this
/// function after each sample.
pub type Feed = Box<dyn FnMut(&mut GatewayTimes, &mut Interner<NormalizedStatement>) + Send>;

/// How often the recorder takes samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Every 15 ms, for at most 5 % of the time. Meant for a suite that is run for its test results.
    Calm,
    /// Every 5 ms, for at most 20 % of the time. Meant for a suite that is only run to be profiled.
    Dense,
}

impl Pace {
    /// Returns the mean sampling interval, and the minimum length of a pause as a multiple of the duration of the
    /// preceding sample.
    fn bounds(self) -> (Duration, u32) {
        match self {
            Self::Calm => (Duration::from_millis(15), 20),
            Self::Dense => (Duration::from_millis(5), 4),
        }
    }
}

/// A running sampler.
#[derive(Debug)]
pub struct Recorder {
    stop: Sender<()>,
    recording: Receiver<Recording>,
    thread: JoinHandle<()>,
}

impl Recorder {
    /// Starts sampling `target`. With a `feed`, also records the gateway's reports.
    ///
    /// # Errors
    ///
    /// Returns an error if the server is unreachable, too old, or doesn't allow sampling.
    pub fn start(target: &Target, pace: Pace, feed: Option<Feed>) -> Result<Self, ProfileError> {
        let sampler = Sampler::open(target, pace, feed)?;
        let ((stop, stopped), (done, recording)) = (channel(), channel());
        let thread = thread::Builder::new().name("profile".to_owned());
        // After a timeout, the caller is no longer waiting for the recording.
        let record = move || drop(done.send(sampler.record(&stopped)));
        let thread = thread.spawn(record).map_err(ProfileError::Thread)?;
        Ok(Self { stop, recording, thread })
    }

    /// Returns true if the recorder stopped on its own because the server disappeared.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Stops sampling and returns the recording. This takes as long as a sample. Without a feed, also opens five
    /// sessions to measure the cost of a session.
    ///
    /// # Errors
    ///
    /// Returns an error if the server doesn't respond in time, for example because its processes are paused.
    ///
    /// # Panics
    ///
    /// Panics if the sampling thread panicked.
    #[allow(clippy::missing_panics_doc)]
    #[expect(clippy::let_underscore_must_use, reason = "the thread is gone already if the server is")]
    pub fn stop(self) -> Result<Recording, ProfileError> {
        let _ = self.stop.send(());
        self.recording.recv_timeout(STOP_TIMEOUT).map_err(|error| match error {
            RecvTimeoutError::Timeout => ProfileError::NoAnswer(STOP_TIMEOUT.as_secs()),
            RecvTimeoutError::Disconnected => unreachable!("nothing in it panics"),
        })
    }
}

struct Sampler {
    client: Client,
    sample_query: Prepared,
    target: Target,
    pace: Pace,
    /// True if the server runs with `fsync=on`.
    flushes: bool,
    before: Counters,
    /// Counts for each statement, or the reason why the server doesn't have them. `None` for pgfresh's own servers,
    /// which don't need these counts.
    counts: Option<Result<Counts, CountsError>>,
    observer: Option<ProcfsSampler>,
    feed: Option<Feed>,
    begun: Instant,
    /// Start of the recording on the server's clock, in microseconds since 1970.
    begun_there: i64,
    recording: Recording,
}

impl Sampler {
    fn open(target: &Target, pace: Pace, feed: Option<Feed>) -> Result<Self, ProfileError> {
        let mut client = target.connect()?;
        let ask = |what| move |source| ProfileError::Ask { what, source };
        let about = "SELECT /* pgfresh */ current_setting('server_version'), current_setting('server_version_num')::int4 / 10000, \
                     pg_backend_pid(), (extract(epoch FROM clock_timestamp()) * 1000000)::int8, current_setting('fsync') = 'on'";
        let row = client.query_one(about, &[]).map_err(ask("the server's version"))?;
        let (version, major): (String, i32) = (row.get(0), row.get(1));
        let major = u32::try_from(major).unwrap_or_default();
        if major < *MAJORS.start() {
            return Err(ProfileError::TooOld(version));
        }
        let sample = client.prepare(SAMPLE_QUERY).map_err(ask("what sessions do"))?;
        let before = Counters::read(&mut client, major)?;
        let counts = (!target.is_ours()).then(|| Counts::read(&mut client));
        let observer = is_visible(row.get(2)).then(|| ProcfsSampler::new(PathBuf::from("/proc")));
        let (target, begun) = (target.clone(), Instant::now());
        let exact = feed.is_some().then(|| GatewayTimes::new(begun));
        let recording = Recording { version, major, exact, ..Recording::default() };
        let flushes = row.get(4);
        Ok(Self {
            client,
            sample_query: sample,
            target,
            pace,
            flushes,
            before,
            counts,
            observer,
            feed,
            begun,
            begun_there: row.get(3),
            recording,
        })
    }

    fn record(mut self, stopped: &Receiver<()>) -> Recording {
        let (period, times) = self.pace.bounds();
        // Vary the pauses so that samples don't coincide with a rhythm in the suite. The lengths are based on multiples
        // of the golden ratio.
        let mut rhythm = (0..).map(|step| period.mul_f64(0.5 + (f64::from(step) * 0.618_034).fract()));
        loop {
            let begun = Instant::now();
            if let Err(error) = self.take_sample() {
                self.recording.cut_short = Some(explain(&error));
                break;
            }
            let took = begun.elapsed();
            self.read_feed();
            self.recording.sampling_time += took.as_secs_f64();
            let rest = rhythm.next().unwrap_or(period).saturating_sub(took).max(took * times);
            if stopped.recv_timeout(rest) != Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                break;
            }
        }
        self.finish()
    }

    fn take_sample(&mut self) -> Result<(), postgres::Error> {
        let rows = self.client.query(&self.sample_query, &[&APPLICATION_NAME])?;
        let at = self.begun.elapsed().as_secs_f64();
        let seen = rows.iter().map(|row| self.read_observation(row)).collect::<Result<_, _>>()?;
        self.recording.samples.push(Snapshot { at, seconds: 0.0, seen });
        Ok(())
    }

    fn read_feed(&mut self) {
        if let (Some(feed), Some(exact)) = (&mut self.feed, &mut self.recording.exact) {
            feed(exact, &mut self.recording.statements);
        }
    }

    fn read_observation(&mut self, row: &Row) -> Result<Observation, postgres::Error> {
        let (pid, began): (i32, i64) =
            (row.try_get(0)?, row.try_get::<_, Option<i64>>(9)?.unwrap_or_default());
        let name = SessionName { pid, began, database: row.try_get(1)?, application: row.try_get(2)? };
        // A session's state is NULL while it starts, or "starting" since version 18.
        let state: Option<&str> = row.try_get(3)?;
        let starting = matches!(state, None | Some("starting"));
        let in_transaction = state.is_some_and(|state| state.starts_with("idle in transaction"));
        let (kind, event): (Option<&str>, Option<&str>) = (row.try_get(4)?, row.try_get(5)?);
        let mut cause = Cause::of(kind, event);
        if let Some(observer) = &mut self.observer {
            observer.record(pid, began, began > self.begun_there);
            if !in_transaction && cause.may_wait_for_others(event) && observer.waits_for_disk(pid) {
                cause = if self.flushes { Cause::FileSystem } else { Cause::DataIo };
            }
        }
        let statement = if starting {
            NormalizedStatement::connecting()
        } else {
            NormalizedStatement::read(row.try_get(6)?)
        };
        let event = kind.map(|kind| format!("{kind} {}", event.unwrap_or_default()));
        let Recording { sessions, statements, events, .. } = &mut self.recording;
        Ok(Observation {
            session: sessions.intern(name),
            state: if in_transaction { State::InTransaction } else { State::Active },
            statement: statements.intern(statement),
            event: event.map(|event| events.intern(event)),
            cause,
            since: row.try_get(7)?,
            elapsed: row.try_get(10)?,
            transaction: row.try_get(8)?,
        })
    }

    fn finish(mut self) -> Recording {
        self.read_feed();
        let Recording { exact, samples, sessions, statements, .. } = &mut self.recording;
        if let Some(exact) = exact {
            exact.end(Instant::now(), statements, |backend, since| {
                let later = samples.iter().rev().take_while(|sample| sample.at >= since);
                let mut seen = later.flat_map(|sample| &sample.seen);
                let found = seen.find(|seen| sessions.get(seen.session).pid == backend)?;
                (found.state == State::Active).then_some(found.statement)
            });
        }
        let Self { mut client, target, before, counts, observer, begun, mut recording, .. } = self;
        recording.seconds = begun.elapsed().as_secs_f64();
        set_weights(&mut recording.samples, recording.seconds);
        recording.machine = observer.map(ProcfsSampler::finish);
        recording.counted = counts.map(|counts| match counts {
            Ok(counts) => counts.since(&mut client),
            Err(error) => Counted::Unavailable(error.to_string()),
        });
        match Counters::read(&mut client, recording.major) {
            Ok(now) => recording.counters = now.since(before),
            Err(error) => {
                recording.cut_short.get_or_insert_with(|| error.to_string());
            }
        }
        drop(client);
        if recording.exact.is_none() {
            recording.session_cost = session_cost(&target);
        }
        recording
    }
}

/// Returns the median time to open a session, in seconds.
fn session_cost(target: &Target) -> Option<f64> {
    let mut costs: Vec<f64> = (0..TRIALS).filter_map(|_| target.measure_session_start()).collect();
    costs.sort_by(f64::total_cmp);
    costs.get(costs.len() / 2).copied()
}

/// Sets how much time each sample represents: from halfway to the previous sample until halfway to the next sample.
/// The first sample extends to the start of the recording, and the last sample to its end.
fn set_weights(samples: &mut [Snapshot], end: f64) {
    let mut begin = 0.0;
    for place in 0..samples.len() {
        let next = samples.get(place + 1).map_or(end, |next| f64::midpoint(samples[place].at, next.at));
        samples[place].seconds = next - begin;
        begin = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_represent_the_whole_recording() {
        let sample = |at| Snapshot { at, seconds: 0.0, seen: Vec::new() };
        let mut samples = [sample(0.1), sample(0.2), sample(0.6)];
        set_weights(&mut samples, 1.0);
        for (sample, expected) in samples.iter().zip([0.15, 0.25, 0.6]) {
            assert!((sample.seconds - expected).abs() < 1e-9, "{samples:?}");
        }
        set_weights(&mut [], 1.0);
    }
}
