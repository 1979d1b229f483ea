//! Defines a recording: a series of samples of a server's activity.

use crate::counters::Counters;
use crate::gateway_times::GatewayTimes;
use crate::interner::Interner;
use crate::machine::MachineUsage;
use crate::statement_counts::Counted;
use crate::wait::Cause;
use pgwire::NormalizedStatement;

/// A session's activity at the moment of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The server is working for the session, or the session is waiting for something inside the server.
    Active,
    /// A transaction is open, but the server is waiting for the client.
    InTransaction,
}

/// A non-idle session in a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// Index of the session in [`Recording::sessions`].
    pub session: u32,
    /// Whether the server or the client is at work.
    pub state: State,
    /// Index of the session's current or last statement in [`Recording::statements`].
    pub statement: u32,
    /// Index of the wait event in [`Recording::events`]. `None` if there is no wait event.
    pub event: Option<u32>,
    /// Why the statement hasn't finished.
    pub cause: Cause,
    /// Start of the statement, in seconds since an arbitrary moment. Distinguishes consecutive runs of a statement.
    pub since: f64,
    /// Seconds between the start of the statement and the sample.
    pub elapsed: f64,
    /// Start of the transaction, in seconds since the same moment as `since`. 0 outside of a transaction.
    pub transaction: f64,
}

/// A sample: all non-idle sessions at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// Seconds between the start of the recording and the sample.
    pub at: f64,
    /// Seconds that the sample represents, from halfway to the previous sample until halfway to the next sample. In a
    /// mean of several runs, divided by the number of runs.
    pub seconds: f64,
    /// All non-idle sessions.
    pub seen: Vec<Observation>,
}

/// Identity of a session's backend.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionName {
    /// Process ID, as reported by the server.
    pub pid: i32,
    /// Start of the backend, in microseconds. Needed because the system reuses process IDs.
    pub began: i64,
    /// Name of the backend's database in the first sample. The name may change later, because pgfresh renames
    /// databases while backends are connected.
    pub database: String,
    /// The backend's `application_name`.
    pub application: String,
}

/// Samples of a server between two moments, or the mean of several runs of the same suite.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    /// The server's version as text.
    pub version: String,
    /// The server's major version.
    pub major: u32,
    /// Duration in seconds.
    pub seconds: f64,
    /// Samples in chronological order.
    pub samples: Vec<Snapshot>,
    /// Backends seen in the samples.
    pub sessions: Interner<SessionName>,
    /// Statements seen in the samples, without their values.
    pub statements: Interner<NormalizedStatement>,
    /// Wait events seen in the samples, as `TYPE EVENT`.
    pub events: Interner<String>,
    /// How much the server's counters increased during the recording.
    pub counters: Counters,
    /// The server's own counts for each statement. `None` if pgfresh started the server.
    pub counted: Option<Counted>,
    /// Usage of this machine's resources. `None` if the server runs on another machine.
    pub machine: Option<MachineUsage>,
    /// The gateway's exact reports. `None` without a gateway.
    pub exact: Option<GatewayTimes>,
    /// Seconds that the recorder spent on sampling.
    pub sampling_time: f64,
    /// Cost of a new session, in seconds. `None` if the gateway reports each session's cost.
    pub session_cost: Option<f64>,
    /// Reason why the recording ended early, if it did.
    pub cut_short: Option<String>,
    /// Number of averaged runs. 0 if this is the recording of a single run.
    pub mean_of: u32,
}

impl Recording {
    /// Returns the mean of several recordings of the same suite, each on a separate server, or `None` if `runs` is
    /// empty. Only uses the first recording's exact reports.
    #[must_use]
    pub fn mean(runs: Vec<Self>) -> Option<Self> {
        let count = u32::try_from(runs.len()).unwrap_or(u32::MAX);
        let part = 1.0 / f64::from(count);
        let mut runs = runs.into_iter();
        let mut mean = runs.next()?;
        if count == 1 {
            return Some(mean);
        }
        let mut end = mean.seconds;
        for run in runs {
            for sample in &run.samples {
                let seen = sample.seen.iter().map(|seen| Observation {
                    session: mean.sessions.intern(run.sessions.get(seen.session).clone()),
                    statement: mean.statements.intern(run.statements.get(seen.statement).clone()),
                    event: seen.event.map(|event| mean.events.intern(run.events.get(event).clone())),
                    ..*seen
                });
                let seen = seen.collect();
                mean.samples.push(Snapshot { at: end + sample.at, seconds: sample.seconds, seen });
            }
            end += run.seconds;
            mean.counters = mean.counters.plus(run.counters);
            mean.machine = mean.machine.zip(run.machine).map(|(one, other)| one.plus(other));
            mean.sampling_time += run.sampling_time;
            mean.cut_short = mean.cut_short.or(run.cut_short);
        }
        mean.seconds = end * part;
        mean.samples.iter_mut().for_each(|sample| sample.seconds *= part);
        mean.sampling_time *= part;
        mean.counters = mean.counters.times(part);
        mean.machine = mean.machine.map(|machine| machine.times(part));
        Some(Self { mean_of: count, ..mean })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribution::Attribution;
    use crate::attribution::tests::recording;
    use proptest::prelude::*;

    fn near(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-9
    }

    fn runs() -> impl Strategy<Value = Vec<Vec<Vec<&'static str>>>> {
        let seen = prop::sample::select(vec![
            "a:COMMIT:sync",
            "b:SELECT 1:cpu",
            "c:TRUNCATE t:sync",
            "d:INSERT INTO t VALUES (1):lock",
            "e:SELECT 2:open",
        ]);
        let sample = prop::collection::btree_set(seen, 0..4).prop_map(|seen| seen.into_iter().collect());
        prop::collection::vec(prop::collection::vec(sample, 1..40), 1..5)
    }

    proptest! {
        #[test]
        fn mean_recording_averages_each_time(runs in runs()) {
            let runs: Vec<Recording> = runs
                .iter()
                .map(|samples| recording(&samples.iter().map(Vec::as_slice).collect::<Vec<_>>()))
                .collect();
            let count = f64::from(u32::try_from(runs.len()).unwrap());
            let each: Vec<Attribution> = runs.iter().map(Attribution::of).collect();
            let of_mean = Attribution::of(&Recording::mean(runs).unwrap());
            let mean = |part: &dyn Fn(&Attribution) -> f64| each.iter().map(part).sum::<f64>() / count;
            for part in [
                &|of: &Attribution| of.wall,
                &|of: &Attribution| of.database.wall,
                &|of: &Attribution| of.database.sessions,
                &|of: &Attribution| of.in_transaction,
                &|of: &Attribution| of.syncing.wall,
                &|of: &Attribution| of.clean_up.time.sessions,
            ] as [&dyn Fn(&Attribution) -> f64; 6] {
                prop_assert!(near(part(&of_mean), mean(part)), "{} {}", part(&of_mean), mean(part));
            }
            for (kind, time) in &of_mean.kinds {
                let expected = mean(&|of| of.kinds.get(kind).map_or(0.0, |time| time.sessions));
                prop_assert!(near(time.sessions, expected), "{kind:?}");
            }
        }

        #[test]
        fn mean_of_equal_runs_equals_one_run(samples in runs(), times in 1_usize..5) {
            let samples: Vec<_> = samples[0].iter().map(Vec::as_slice).collect();
            let once = Attribution::of(&recording(&samples));
            let later = |run: usize| {
                let mut recording = recording(&samples);
                let seen = recording.samples.iter_mut().flat_map(|sample| &mut sample.seen);
                seen.for_each(|seen| seen.since += 1000.0 * report::as_f64(run));
                recording
            };
            let mean = Recording::mean((0..times).map(later).collect()).unwrap();
            let of_mean = Attribution::of(&mean);
            prop_assert!(near(of_mean.wall, once.wall) && near(of_mean.database.wall, once.database.wall));
            for (statement, spent) in &once.statements {
                let (_, other) = of_mean.statements.iter().find(|(other, _)| other == statement).unwrap();
                prop_assert!(near(spent.time.sessions, other.time.sessions) && near(spent.runs, other.runs));
            }
            // The mean also contains the step from the end of one run to the start of the next, here a single sample of
            // 10 ms.
            prop_assert!(of_mean.syncing_error <= once.syncing_error.hypot(0.01));
        }
    }

    #[test]
    fn mean_of_no_recordings_is_none() {
        assert!(Recording::mean(Vec::new()).is_none());
    }
}
