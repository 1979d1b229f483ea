//! The last statements of each lease: the evidence that a failed test leaves beside its database.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use lease::{Leases, cut};
use serde::{Deserialize, Serialize};
use sys::lock;

/// Statements of a lease that are remembered.
const STATEMENTS: usize = 20;
/// Leases whose statements are remembered, besides those of open sessions and those that are kept: of more, the half that ran
/// something last.
const LEASES: usize = 1000;

/// A statement that a session has run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExecutedStatement {
    /// Its first 1023 bytes, with the parameters' numbers where it has parameters.
    pub statement: String,
    /// When it was passed on to the server, in seconds since 1970.
    pub begun: f64,
    /// Until it was done.
    pub seconds: f64,
    /// The error that it ended in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<SqlError>,
}

/// Why a statement failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SqlError {
    /// Its SQLSTATE.
    pub code: String,
    /// Its primary message; of a very long one the begin.
    pub message: String,
}

/// A database of a failed test that was kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptDatabase {
    /// As it is called now.
    pub name: String,
    /// The test's name, on one line, or else the name that the database had in the test.
    #[serde(default)]
    pub test: String,
    /// The template that it is a copy of, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Whether another server has kept it, on whose data this one goes on: it is no lease here.
    #[serde(skip)]
    pub inherited: bool,
    /// What the test ran last, the newest last: 20 statements at most.
    pub statements: Vec<ExecutedStatement>,
}

/// The last statements of one name with the moments when they were passed on, the newest last.
pub(crate) type Ring = Arc<Mutex<VecDeque<(Instant, ExecutedStatement)>>>;

/// The last statements of all leases.
#[derive(Debug, Default)]
pub struct StatementHistory(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// By the name that sessions have asked for.
    rings: HashMap<String, Ring>,
    kept: Vec<KeptDatabase>,
}

impl State {
    /// Half of them at once, so that not each new name has to look through all. Those of open sessions stay.
    fn forget_older_half(&mut self) {
        let last = |ring: &Ring| lock(ring).back().map(|(begun, _)| *begun);
        let mut times: Vec<_> = self.rings.values().map(last).collect();
        let middle = times.len() / 2;
        let bound = *times.select_nth_unstable(middle).1;
        self.rings.retain(|_, ring| Arc::strong_count(ring) > 1 || last(ring) > bound);
    }
}

impl StatementHistory {
    /// Where the statements of a session with the database `name` go.
    pub(crate) fn ring(&self, name: &str) -> Ring {
        let mut state = lock(&self.0);
        if state.rings.len() >= LEASES && !state.rings.contains_key(cut(name)) {
            state.forget_older_half();
        }
        Arc::clone(state.rings.entry(cut(name).to_owned()).or_default())
    }

    /// The last statements of the lease `name` that has lasted since then, the newest last.
    #[must_use]
    pub fn of(&self, name: &str, since: Instant) -> Vec<ExecutedStatement> {
        let state = lock(&self.0);
        let Some(ring) = state.rings.get(cut(name)) else { return Vec::new() };
        // The name may have had other leases before.
        let statements = lock(ring);
        statements.iter().filter(|(begun, _)| *begun >= since).map(|(_, ran)| ran.clone()).collect()
    }

    /// Takes note of which databases of failed tests are still there: one may have been released, or have made room, since it was
    /// kept. Those that another server kept are.
    pub fn forget_gone(&self, leases: &Leases) {
        lock(&self.0).kept.retain(|kept| kept.inherited || leases.is_kept(&kept.name));
    }

    /// The databases that earlier failures of that test left.
    #[must_use]
    pub fn kept_of(&self, test: &str) -> Vec<String> {
        let state = lock(&self.0);
        let of_test = state.kept.iter().filter(|kept| !kept.inherited && kept.test == test);
        of_test.map(|kept| kept.name.clone()).collect()
    }

    /// Takes note of a database that was kept.
    pub fn keep(&self, kept: KeptDatabase) {
        lock(&self.0).kept.push(kept);
    }

    /// The kept database that is called so now.
    #[must_use]
    pub fn kept_as(&self, name: &str) -> Option<KeptDatabase> {
        lock(&self.0).kept.iter().find(|kept| kept.name == name).cloned()
    }

    /// Takes note that a kept database is not there any more.
    pub fn forget_kept(&self, name: &str) {
        lock(&self.0).kept.retain(|kept| kept.name != name);
    }

    /// All databases that were kept.
    #[must_use]
    pub fn kept(&self) -> Vec<KeptDatabase> {
        lock(&self.0).kept.clone()
    }

    /// Forgets what the lease `name` has run: its database is reset.
    pub fn forget(&self, name: &str) {
        if let Some(ring) = lock(&self.0).rings.get(cut(name)) {
            lock(ring).clear();
        }
    }
}

/// Takes note of a statement that was passed on then.
pub(crate) fn add(ring: &Ring, begun: Instant, executed: ExecutedStatement) {
    let mut ring = lock(ring);
    if ring.len() == STATEMENTS {
        ring.pop_front();
    }
    ring.push_back((begun, executed));
}

/// Seconds since 1970.
pub(crate) fn seconds_of(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn run(ring: &Ring, statement: &str, begun: Instant) {
        let statement = statement.to_owned();
        add(ring, begun, ExecutedStatement { statement, begun: 0.0, seconds: 0.001, error: None });
    }

    #[test]
    fn the_last_statements_of_this_lease_are_known() {
        let history = StatementHistory::default();
        let (before, since) = (Instant::now(), Instant::now() + Duration::from_micros(1));
        let ring = history.ring("orders");
        run(&ring, "of another lease", before);
        for number in 0..30 {
            run(&ring, &number.to_string(), since);
        }
        let statements = history.of("orders", since);
        assert_eq!(statements.len(), STATEMENTS);
        assert_eq!((&*statements[0].statement, &*statements[19].statement), ("10", "29"));
        history.forget("orders");
        run(&ring, "of another lease", before);
        assert_eq!(history.of("orders", since), []);
    }

    #[test]
    fn those_who_ran_nothing_for_long_are_forgotten() {
        let history = StatementHistory::default();
        let now = Instant::now();
        let open = history.ring("open");
        for number in 0..LEASES {
            let begun = now + Duration::from_millis(number as u64);
            run(&history.ring(&number.to_string()), "x", begun);
        }
        run(&open, "x", now);
        let known = |name: &str| history.of(name, now).len();
        assert_eq!([known("0"), known("open"), known("998"), known("999")], [0, 1, 1, 1]);
        assert!(lock(&history.0).rings.len() <= LEASES / 2 + 2);
    }
}
