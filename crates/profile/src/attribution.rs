//! Divides a recording's time among statements, waits and databases.
//!
//! Each sample represents the time around it, from halfway to the previous sample until halfway to the next sample.
//! This time is counted in three ways.
//!
//! *Session time* counts it once for every session at work: three sessions at work for a second add up to three
//! seconds. *Wall time* divides it among the sessions at work. All wall times, together with the time when no session
//! is at work, add up to the recording's length.
//!
//! *Saved time* divides it by the number of sessions usually at work around that moment, to estimate how much sooner
//! the whole suite would finish without this work. Suppose that three sessions share the suite's work. If one session
//! waits while the others continue, the suite would finish only a little sooner without that wait. But if one session
//! prepares something for all three, they all wait for it.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::recording::{Observation, Recording, SessionName, Snapshot, State};
use crate::time::Time;
use crate::wait::Cause;
use pgwire::StatementKind;

/// The usual number of sessions is the largest number that are at work at the same time for at least this fraction of
/// the time in the database.
const MIN_USUAL_SHARE: f64 = 0.05;
/// Wait event of a backend that flushes a file right after creating it. Source: the tables of I/O wait events in the
/// manuals of versions 13 to 18.
const NEW_FILE: &str = "IO DataFileImmediateSync";
/// Length of the periods before and after a moment that determine how many sessions are usually at work then, in
/// seconds. One second contains enough samples.
const WIDTH_WINDOW: f64 = 1.0;
/// Distance from the mean to each end of a 95 % confidence interval, in standard errors.
const STANDARD_ERRORS: f64 = 1.96;

/// Time and number of runs of one statement, regardless of its parameter values.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TimeAndRuns {
    /// Total time of all runs.
    pub time: Time,
    /// Number of runs seen in at least one sample, over all recordings.
    pub seen: usize,
    /// Estimated number of runs per recording, which is at least `seen` divided by the number of recordings.
    ///
    /// On average, a sample hits a run of length d when half of the run (d/2) is over. A run is therefore twice as
    /// long as the mean elapsed time. Dividing the total time by this length yields the number of runs. The estimate
    /// is right if all runs are about equally long, and too small if there are long runs among short ones.
    pub runs: f64,
}

impl TimeAndRuns {
    /// Returns a run's mean duration, in seconds.
    #[must_use]
    pub fn each(&self) -> f64 {
        self.time.sessions / self.runs.max(1.0)
    }
}

/// A recording's time, divided in several ways.
#[derive(Debug, Clone, Default)]
pub struct Attribution {
    /// True if times and runs are exact, false if they are estimates from samples.
    pub exact: bool,
    /// The recording's length, in seconds.
    pub wall: f64,
    /// Time with sessions at work, i.e., the time in the database.
    pub database: Time,
    /// Seconds during which a transaction was open but the server wasn't at work.
    pub in_transaction: f64,
    /// Number of sessions usually at work concurrently, ignoring the time when no session is at work.
    pub width: f64,
    /// Maximum number of sessions at work concurrently.
    pub max_sessions: usize,
    /// Time of each kind of statement.
    pub kinds: BTreeMap<StatementKind, Time>,
    /// Time of each cause of waiting.
    pub causes: BTreeMap<Cause, Time>,
    /// Time of each combination of a kind of statement and a cause of waiting.
    pub kinds_and_causes: BTreeMap<(StatementKind, Cause), Time>,
    /// Time of each statement, by the statement's index in the recording, longest first.
    pub statements: Vec<(u32, TimeAndRuns)>,
    /// Time of each database, longest first.
    pub databases: Vec<(String, Time)>,
    /// Time and runs of the statements that empty tables, including their transactions' commits.
    pub clean_up: TimeAndRuns,
    /// Session time of sampled sessions that bypassed the gateway, in seconds. 0 without exact reports.
    pub(crate) outside_gateway: f64,
    /// Time of waits for syncs, including waits for another session that performs the sync while holding the lock.
    pub syncing: Time,
    /// Standard error of the saved syncing time, times 1.96, in seconds. The error is due to syncs between two
    /// samples, which the samples miss.
    pub syncing_error: f64,
    /// Time of waits for new files, which the server flushes before the statement that creates them completes.
    pub new_files: Time,
}

impl Attribution {
    /// Divides the time of `recording` based on its samples alone.
    pub(crate) fn sampled(recording: &Recording) -> Self {
        let mut attribution = Self { wall: recording.seconds, ..Self::default() };
        let mut runs = Runs::default();
        for (sample, width) in recording.samples.iter().zip(widths(&recording.samples)) {
            attribution.add(sample, width, recording, &mut runs);
        }
        attribution.finish(recording, runs)
    }

    fn add(&mut self, sample: &Snapshot, width: f64, recording: &Recording, runs: &mut Runs) {
        let active = || sample.seen.iter().filter(|seen| seen.state == State::Active);
        let count = sample.at_work();
        let before = self.syncing.saved;
        if count == 0 {
            if !sample.seen.is_empty() {
                self.in_transaction += sample.seconds;
            }
            return runs.add_syncing(0.0);
        }
        self.max_sessions = self.max_sessions.max(count);
        *runs.at_once.entry(count).or_default() += sample.seconds;
        let among = report::as_f64(count);
        let any_syncing = active().any(|seen| seen.cause.is_sync());
        for seen in active() {
            let statement = recording.statements.get(seen.statement);
            let kind = statement.kind;
            self.database.add(sample.seconds, among, width);
            self.kinds.entry(kind).or_default().add(sample.seconds, among, width);
            self.causes.entry(seen.cause).or_default().add(sample.seconds, among, width);
            self.kinds_and_causes.entry((kind, seen.cause)).or_default().add(sample.seconds, among, width);
            if seen.cause.is_sync() || (seen.cause == Cause::Lock && any_syncing) {
                self.syncing.add(sample.seconds, among, width);
            }
            let event = seen.event.map(|event| recording.events.get(event));
            if event.is_some_and(|event| event.eq_ignore_ascii_case(NEW_FILE)) {
                self.new_files.add(sample.seconds, among, width);
            }
            runs.statements.entry(seen.statement).or_default().add(sample.seconds, among, width, seen);
            let SessionName { pid, database, .. } = recording.sessions.get(seen.session);
            if recording.exact.as_ref().is_some_and(|exact| !exact.has_backend(*pid)) {
                self.outside_gateway += sample.seconds;
            }
            runs.databases.entry(database.clone()).or_default().add(sample.seconds, among, width);
            let transaction = (seen.session, seen.transaction.to_bits());
            if statement.clears {
                runs.clearing.insert(transaction);
            }
            if statement.clears || (kind == StatementKind::Commit && runs.clearing.contains(&transaction)) {
                self.clean_up.time.add(sample.seconds, among, width);
            }
        }
        runs.add_syncing(self.syncing.saved - before);
    }

    fn finish(mut self, recording: &Recording, runs: Runs) -> Self {
        self.width = Self::usual(&runs.at_once, self.database.wall);
        self.syncing_error = STANDARD_ERRORS * (runs.steps / 2.0).sqrt();
        let of = recording.mean_of.max(1);
        for (_, run) in
            runs.statements.iter().filter(|(statement, _)| recording.statements.get(**statement).clears)
        {
            let spent = run.spent(of);
            self.clean_up.seen += spent.seen;
            self.clean_up.runs += spent.runs;
        }
        self.statements =
            runs.statements.into_iter().map(|(statement, run)| (statement, run.spent(of))).collect();
        self.statements.sort_by(|(_, one), (_, other)| other.time.sessions.total_cmp(&one.time.sessions));
        self.databases = runs.databases.into_iter().collect();
        self.databases.sort_by(|(_, one), (_, other)| other.sessions.total_cmp(&one.sessions));
        self
    }

    /// Returns how many sessions are usually at work concurrently. `at_once` maps numbers of sessions to seconds, and
    /// `all` is the sum of these seconds.
    pub(crate) fn usual(at_once: &BTreeMap<usize, f64>, all: f64) -> f64 {
        let mut seconds = 0.0;
        let usual = at_once.iter().rev().find(|(_, time)| {
            seconds += **time;
            seconds >= MIN_USUAL_SHARE * all
        });
        usual.map_or(1.0, |(count, _)| report::as_f64(*count))
    }

    /// Returns the server's idle time in seconds.
    #[must_use]
    pub fn idle_seconds(&self) -> f64 {
        self.wall - self.database.wall
    }

    /// Returns `seconds` as a fraction (0 to 1) of the recording's length.
    #[must_use]
    pub fn share(&self, seconds: f64) -> f64 {
        if self.wall > 0.0 { seconds / self.wall } else { 0.0 }
    }

    /// Sorts the times in descending order.
    pub(crate) fn ranked<K: Copy>(times: &BTreeMap<K, Time>) -> Vec<(K, Time)> {
        let mut ranked: Vec<(K, Time)> = times.iter().map(|(key, time)| (*key, *time)).collect();
        ranked.sort_by(|(_, one), (_, other)| other.sessions.total_cmp(&one.sessions));
        ranked
    }
}

impl Snapshot {
    /// Returns how many sessions are at work in this sample.
    fn at_work(&self) -> usize {
        self.seen.iter().filter(|seen| seen.state == State::Active).count()
    }
}

/// Returns how many sessions are usually at work around each sample.
///
/// This is the smaller of two numbers: the number for the second before the sample and the number for the second after
/// it. If the number of sessions changes at some moment, samples before that moment thus get the old number and
/// samples after it the new number.
fn widths(samples: &[Snapshot]) -> Vec<f64> {
    let (mut at_once, mut from) = (BTreeMap::<usize, f64>::new(), 0);
    let mut until = |sample: &Snapshot| {
        *at_once.entry(sample.at_work()).or_default() += sample.seconds;
        for past in samples[from..].iter().take_while(|past| past.at < sample.at - WIDTH_WINDOW) {
            *at_once.entry(past.at_work()).or_default() -= past.seconds;
            from += 1;
        }
        let busy = at_once.iter().filter(|(count, _)| **count > 0).map(|(_, seconds)| seconds).sum();
        Attribution::usual(&at_once, busy)
    };
    let until: Vec<f64> = samples.iter().map(&mut until).collect();
    // Index of the last sample within one second after `at`. The window that ends at that sample is the window that
    // starts at `at`.
    let later = |at: f64| samples.partition_point(|sample| sample.at <= at + WIDTH_WINDOW).saturating_sub(1);
    let whole = samples.first().map_or(0, |first| later(first.at));
    let around = |(place, sample): (usize, &Snapshot)| until[place.max(whole)].min(until[later(sample.at)]);
    samples.iter().enumerate().map(around).collect()
}

/// Intermediate results while iterating over the samples.
#[derive(Debug, Default)]
struct Runs {
    /// Seconds during which each number of sessions was at work.
    at_once: BTreeMap<usize, f64>,
    statements: HashMap<u32, Run>,
    databases: BTreeMap<String, Time>,
    /// Transactions that emptied a table, by session and start.
    clearing: HashSet<(u32, u64)>,
    /// Number of seconds that the previous sample attributed to syncs.
    before: f64,
    /// Sum of the squared differences between neighboring samples. For samples as regular as these, half of the sum is
    /// the variance of the total. Source: Wolter, Introduction to Variance Estimation, chapter 8.
    steps: f64,
}

impl Runs {
    fn add_syncing(&mut self, syncing: f64) {
        self.steps += (syncing - std::mem::replace(&mut self.before, syncing)).powi(2);
    }
}

#[derive(Debug, Default)]
struct Run {
    time: Time,
    /// Runs seen in samples, by session and start.
    seen: HashSet<(u32, u64)>,
    /// Sum of the seconds since the run's start, each weighted by the time that its sample represents.
    elapsed: f64,
}

impl Run {
    fn add(&mut self, seconds: f64, among: f64, width: f64, seen: &Observation) {
        self.time.add(seconds, among, width);
        self.seen.insert((seen.session, seen.since.to_bits()));
        self.elapsed += seconds * seen.elapsed;
    }

    /// Returns the mean over `of` recordings.
    fn spent(&self, of: u32) -> TimeAndRuns {
        let (time, seen) = (self.time, self.seen.len());
        let length = 2.0 * self.elapsed / time.sessions;
        let runs = if length > 0.0 { time.sessions / length } else { 0.0 };
        TimeAndRuns { time, seen, runs: runs.max(report::as_f64(seen) / f64::from(of)) }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use pgwire::NormalizedStatement;

    /// Returns a recording whose samples each represent 10 ms.
    ///
    /// Each sample lists its non-idle sessions in the form `SESSION:SQL:WAIT`, where WAIT is `cpu`, `sync`,
    /// `checkpoint`, `lock` or `open` (idle in a transaction). Consecutive samples of the same statement belong to
    /// a single run.
    pub(crate) fn recording(samples: &[&[&str]]) -> Recording {
        let mut recording = Recording { major: 15, ..Recording::default() };
        let mut running: HashMap<u32, (u32, f64)> = HashMap::new();
        for sample in samples {
            let at = recording.seconds + 0.01;
            let mut seen = Vec::new();
            for word in *sample {
                let parts: Vec<&str> = word.split(':').collect();
                let [name, sql, wait] = parts[..] else { panic!("{word}") };
                let session = recording.sessions.intern(SessionName {
                    pid: name.bytes().map(i32::from).sum(),
                    began: 0,
                    database: format!("of_{name}"),
                    application: String::new(),
                });
                let statement = recording.statements.intern(NormalizedStatement::read(sql));
                let since = match running.get(&session) {
                    Some((same, since)) if *same == statement => *since,
                    _ => at,
                };
                running.insert(session, (statement, since));
                let (state, cause) = match wait {
                    "sync" => (State::Active, Cause::WalSync),
                    "checkpoint" => (State::Active, Cause::Checkpoint),
                    "lock" => (State::Active, Cause::Lock),
                    "open" => (State::InTransaction, Cause::Client),
                    _ => (State::Active, Cause::Cpu),
                };
                seen.push(Observation {
                    session,
                    state,
                    statement,
                    event: None,
                    cause,
                    since,
                    elapsed: at - since,
                    transaction: 1.0,
                });
            }
            running.retain(|session, _| seen.iter().any(|seen| seen.session == *session));
            recording.samples.push(Snapshot { at, seconds: 0.01, seen });
            recording.seconds = at;
        }
        recording
    }

    fn near(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-9
    }

    #[test]
    fn attributed_times_add_up_to_recording() {
        let recording = recording(&[
            &["a:TRUNCATE t:sync", "b:SELECT 1:cpu"],
            &["a:TRUNCATE t:sync"],
            &["a:COMMIT:sync"],
            &[],
            &["b:SELECT 1:open"],
        ]);
        let attribution = Attribution::of(&recording);
        assert!(near(attribution.wall, 0.05) && near(attribution.database.wall, 0.03));
        assert!(near(attribution.database.sessions, 0.04) && near(attribution.in_transaction, 0.01));
        assert!(near(attribution.idle_seconds(), 0.02));
        for parts in [
            attribution.kinds.values().copied().collect::<Vec<_>>(),
            attribution.causes.values().copied().collect(),
            attribution.kinds_and_causes.values().copied().collect(),
            attribution.statements.iter().map(|(_, spent)| spent.time).collect(),
            attribution.databases.iter().map(|(_, time)| *time).collect(),
        ] {
            assert!(near(parts.iter().map(|time| time.wall).sum(), 0.03), "{parts:?}");
            assert!(near(parts.iter().map(|time| time.sessions).sum(), 0.04), "{parts:?}");
        }
        assert!(near(attribution.kinds[&StatementKind::Truncate].wall, 0.015));
        assert!(near(attribution.syncing.sessions, 0.03));
        assert_eq!(attribution.databases[0].0, "of_a");
    }

    #[test]
    fn clean_up_includes_only_its_own_commit() {
        let recording = recording(&[
            &["b:COMMIT:sync"],
            &["a:DELETE FROM t:cpu"],
            &["a:COMMIT:sync"],
            &["b:DELETE FROM t WHERE a = 1:cpu"],
        ]);
        let Attribution { clean_up, .. } = Attribution::of(&recording);
        assert!(near(clean_up.time.wall, 0.02) && clean_up.seen == 1, "{clean_up:?}");
    }

    #[test]
    fn runs_are_distinguished_by_start_time() {
        let recording = recording(&[
            &["a:SELECT 1:cpu"],
            &["a:SELECT 1:cpu"],
            &[],
            &["a:SELECT 2:cpu", "b:SELECT 3:cpu"],
        ]);
        let attribution = Attribution::of(&recording);
        assert_eq!(attribution.statements.len(), 1);
        assert_eq!(attribution.statements[0].1.seen, 3);
    }

    #[test]
    fn run_estimate_includes_unsampled_runs() {
        // 1000 consecutive runs of 2 ms, with a sample every 15.1 ms.
        let mut recording = recording(&[]);
        let template = super::tests::recording(&[&["a:TRUNCATE t:cpu"]]);
        (recording.sessions, recording.statements) = (template.sessions, template.statements);
        let mut at: f64 = 0.0;
        while at + 0.0151 < 2.0 {
            at += 0.0151;
            let since = (at / 0.002).floor() * 0.002;
            let seen = Observation { since, elapsed: at - since, ..template.samples[0].seen[0] };
            recording.samples.push(Snapshot { at, seconds: 0.0151, seen: vec![seen] });
        }
        recording.seconds = at;
        let Attribution { clean_up, .. } = Attribution::of(&recording);
        assert!(clean_up.seen < 140 && (clean_up.runs - 1000.0).abs() < 60.0, "{clean_up:?}");
        assert!((clean_up.each() - 0.002).abs() < 0.0002, "{clean_up:?}");
    }

    #[test]
    fn rare_concurrency_is_not_usual_width() {
        let alone: &[&str] = &["a:SELECT 1:cpu"];
        let crowd: &[&str] = &["a:SELECT 1:cpu", "b:SELECT 1:cpu", "c:SELECT 1:lock"];
        let samples: Vec<&[&str]> =
            (0..100).map(|sample| if sample % 25 == 0 { crowd } else { alone }).collect();
        let attribution = Attribution::of(&recording(&samples));
        assert!(near(attribution.width, 1.0) && attribution.max_sessions == 3, "{}", attribution.width);
        let samples: Vec<&[&str]> =
            (0..100).map(|sample| if sample % 10 == 0 { crowd } else { alone }).collect();
        assert!(near(Attribution::of(&recording(&samples)).width, 3.0));
        assert!(near(Attribution::of(&Recording::default()).width, 1.0));
    }

    #[test]
    fn syncing_time_of_lone_session_is_saved_whole() {
        let [alone, many]: [&[&str]; 2] =
            [&["a:COPY t:sync"], &["a:COMMIT:sync", "b:SELECT 1:cpu", "c:SELECT 1:cpu"]];
        let samples = |first: usize, second: usize| {
            [vec![alone; first], vec![many; second], vec![alone; first]].concat()
        };
        for (first, second) in [(150, 300), (150, 50), (0, 90)] {
            let attribution = Attribution::of(&recording(&samples(first, second)));
            let expected = 0.01 * report::as_f64(2 * first) + 0.01 / 3.0 * report::as_f64(second);
            assert!(
                (attribution.syncing.saved - expected).abs() < 0.04,
                "{expected} {:?}",
                attribution.syncing
            );
        }
    }

    #[test]
    fn syncing_error_bounds_sampling_deviation() {
        // A sync takes up 30 % of every 13 ms, and there is a sample every 10 ms.
        let seen = |sample: u32| f64::from(sample * 10 % 13) < 0.3 * 13.0;
        let samples: Vec<&[&str]> =
            (0..500).map(|sample| if seen(sample) { &["a:COMMIT:sync"] as &[&str] } else { &[] }).collect();
        let attribution = Attribution::of(&recording(&samples));
        let off = (attribution.syncing.saved - 0.3 * attribution.wall).abs();
        assert!(off < attribution.syncing_error && attribution.syncing_error < 0.3, "{off} {attribution:?}");
        // If all samples show the same state, there is no error.
        let steady = Attribution::of(&recording(&[["a:COMMIT:sync"].as_slice(); 500]));
        assert!(steady.syncing_error < 0.02, "{steady:?}");
    }

    #[test]
    fn lock_wait_for_syncing_session_counts_as_syncing() {
        let recording = recording(&[
            &["a:COMMIT:sync", "b:UPDATE t SET a = 1:lock"],
            &["a:SELECT 1:cpu", "b:UPDATE t SET a = 1:lock"],
        ]);
        assert!(near(Attribution::of(&recording).syncing.sessions, 0.02));
    }
}
