//! Recording of a server as a series of samples.

use crate::counted::Counted;
use crate::counters::Counters;
use crate::exact::Exact;
use crate::interner::Interner;
use crate::machine::MachineUsage;
use crate::wait::Cause;
use pgwire::NormalizedStatement;

/// Activity of a session in a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The server works for the session, or the session waits for something.
    Active,
    /// The client works while a transaction is open.
    InTransaction,
}

/// Session in a sample that is not idle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// Index of the session in [`Recording::sessions`].
    pub session: u32,
    /// Whether the server or the client is at work.
    pub state: State,
    /// Index of its present or last statement in [`Recording::statements`].
    pub statement: u32,
    /// Index of the wait event in [`Recording::events`]; `None` without one.
    pub event: Option<u32>,
    /// Reason why the statement is not finished.
    pub cause: Cause,
    /// Start of the statement, in seconds since some fixed moment. It distinguishes successive runs.
    pub since: f64,
    /// Seconds since the start of the statement.
    pub elapsed: f64,
    /// Start of the transaction, in seconds since the same moment; 0 outside of a transaction.
    pub transaction: f64,
}

/// Sample: all sessions that are not idle at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// Seconds since the recording began.
    pub at: f64,
    /// Seconds that the sample represents: half of those to either neighbour, divided by the number of runs in a mean.
    pub seconds: f64,
    /// Sessions that are not idle.
    pub seen: Vec<Observation>,
}

/// Identity of a backend.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionName {
    /// Pid, as the server reports it.
    pub pid: i32,
    /// Start of the backend in microseconds, because pids are reused.
    pub began: i64,
    /// Name of its database in the first sample. pgfresh renames databases while backends are connected.
    pub database: String,
    /// Its `application_name`.
    pub application: String,
}

/// Samples of a server between two moments, or the mean of several equal runs.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    /// Version of the server as text.
    pub version: String,
    /// Major version of the server.
    pub major: u32,
    /// Duration in seconds.
    pub seconds: f64,
    /// Samples in order of time.
    pub looks: Vec<Snapshot>,
    /// Backends in the samples.
    pub sessions: Interner<SessionName>,
    /// Statements in the samples, without values.
    pub statements: Interner<NormalizedStatement>,
    /// Wait events in the samples, as `TYPE EVENT`.
    pub events: Interner<String>,
    /// Increase of the server's counters.
    pub counters: Counters,
    /// Server's counts per statement; `None` for a server of pgfresh.
    pub counted: Option<Counted>,
    /// Resource usage on this machine; `None` if the server runs elsewhere.
    pub machine: Option<MachineUsage>,
    /// Exact reports of each statement; `None` without a gateway.
    pub exact: Option<Exact>,
    /// Seconds spent on sampling.
    pub looking: f64,
    /// Cost of a new session in seconds; `None` if the gateway reports that of each session.
    pub session_cost: Option<f64>,
    /// Reason for an early end, if any.
    pub cut_short: Option<String>,
    /// Number of runs in a mean; 0 for a single run.
    pub mean_of: u32,
}

impl Recording {
    /// Returns the mean of recordings of equal runs on separate servers. `None` without recordings. Ignores exact
    /// reports of all but the first.
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
            for look in &run.looks {
                let seen = look.seen.iter().map(|seen| Observation {
                    session: mean.sessions.put(run.sessions.get(seen.session).clone()),
                    statement: mean.statements.put(run.statements.get(seen.statement).clone()),
                    event: seen.event.map(|event| mean.events.put(run.events.get(event).clone())),
                    ..*seen
                });
                let seen = seen.collect();
                mean.looks.push(Snapshot { at: end + look.at, seconds: look.seconds, seen });
            }
            end += run.seconds;
            mean.counters = mean.counters.plus(run.counters);
            mean.machine = mean.machine.zip(run.machine).map(|(one, other)| one.plus(other));
            mean.looking += run.looking;
            mean.cut_short = mean.cut_short.or(run.cut_short);
        }
        mean.seconds = end * part;
        mean.looks.iter_mut().for_each(|look| look.seconds *= part);
        mean.looking *= part;
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
        let look = prop::collection::btree_set(seen, 0..4).prop_map(|seen| seen.into_iter().collect());
        prop::collection::vec(prop::collection::vec(look, 1..40), 1..5)
    }

    proptest! {
        #[test]
        fn a_mean_has_the_mean_of_each_time(runs in runs()) {
            let runs: Vec<Recording> = runs
                .iter()
                .map(|looks| recording(&looks.iter().map(Vec::as_slice).collect::<Vec<_>>()))
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
        fn mean_of_equal_runs_equals_one_run(looks in runs(), times in 1_usize..5) {
            let looks: Vec<_> = looks[0].iter().map(Vec::as_slice).collect();
            let once = Attribution::of(&recording(&looks));
            let later = |run: usize| {
                let mut recording = recording(&looks);
                let seen = recording.looks.iter_mut().flat_map(|look| &mut look.seen);
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
            // The count includes the change from the end of one run to the beginning of the next. Here that is one
            // sample of 10 ms.
            prop_assert!(of_mean.syncing_error <= once.syncing_error.hypot(0.01));
        }
    }

    #[test]
    fn there_is_no_mean_of_nothing() {
        assert!(Recording::mean(Vec::new()).is_none());
    }
}
