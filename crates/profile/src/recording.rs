//! What was seen of a server, look by look.

use crate::counted::Counted;
use crate::counters::Counters;
use crate::exact::Exact;
use crate::interner::Interner;
use crate::machine::MachineUsage;
use crate::wait::Cause;
use pgwire::NormalizedStatement;

/// What a session does at the moment of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The server works for it, or it waits for something.
    Active,
    /// Its client works, in the middle of a transaction.
    InTransaction,
}

/// A session that is not idle at the moment of a look.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// Which, in [`Recording::sessions`].
    pub session: u32,
    /// Whether the server or the client is at work.
    pub state: State,
    /// What it runs or ran last, in [`Recording::statements`].
    pub statement: u32,
    /// The wait event, in [`Recording::events`]; `None` if there is none.
    pub event: Option<u32>,
    /// Why it is not done.
    pub cause: Cause,
    /// When the statement began, in seconds since some moment; tells one run of it from the next.
    pub since: f64,
    /// Seconds since then.
    pub elapsed: f64,
    /// When its transaction began, likewise; 0 outside of one.
    pub transaction: f64,
}

/// All sessions that are not idle at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// Seconds since the recording began.
    pub at: f64,
    /// Seconds for which it stands: half of those to either neighbour, divided among the runs.
    pub seconds: f64,
    /// The sessions.
    pub seen: Vec<Observation>,
}

/// A backend.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionName {
    /// Its process, as the server knows it.
    pub pid: i32,
    /// When it began, in microseconds: process numbers come again.
    pub began: i64,
    /// The database, as it was called when it was seen first there: databases are renamed under their backends.
    pub database: String,
    /// What it calls itself.
    pub application: String,
}

/// All that was seen of a server between two moments, or of several that ran the same, as the mean of them.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    /// Its version, as it writes it.
    pub version: String,
    /// Its major version.
    pub major: u32,
    /// Seconds from the first moment to the last.
    pub seconds: f64,
    /// In order of time.
    pub looks: Vec<Snapshot>,
    /// Backends that were seen.
    pub sessions: Interner<SessionName>,
    /// Statements that were seen, without their values.
    pub statements: Interner<NormalizedStatement>,
    /// Wait events that were seen, as `TYPE EVENT`.
    pub events: Interner<String>,
    /// What the server counted meanwhile.
    pub counters: Counters,
    /// What the server counted of each statement; nothing is asked of a server of ours.
    pub counted: Option<Counted>,
    /// What the machine shows of it; nothing if the server is not on this machine.
    pub machine: Option<MachineUsage>,
    /// What was told of each statement, beside all looks; empty without a gateway.
    pub exact: Option<Exact>,
    /// Seconds that went into looking.
    pub looking: f64,
    /// What a new session costs, in seconds, where no gateway tells what each did.
    pub session_cost: Option<f64>,
    /// Why it ended before its time.
    pub cut_short: Option<String>,
    /// The runs of which it is the mean; 0 if it is one run.
    pub mean_of: u32,
}

impl Recording {
    /// The mean of recordings of the same, each on a server like the others; `None` of none. What was told beside looks is
    /// not joined.
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
        fn the_mean_of_the_same_is_that_itself_but_for_its_uncertainty(looks in runs(), times in 1_usize..5) {
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
            // The change from the end of one run to the beginning of the next is counted, too: of one look, here 10 ms.
            prop_assert!(of_mean.syncing_error <= once.syncing_error.hypot(0.01));
        }
    }

    #[test]
    fn there_is_no_mean_of_nothing() {
        assert!(Recording::mean(Vec::new()).is_none());
    }
}
