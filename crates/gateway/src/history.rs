//! Stores the last statements of each lease (the use of a database under a name).
//!
//! After a failed test, pgfresh shows these statements along with the kept database.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use contract::ExecutedStatement;
use lease::{Leases, cut};
use serde::{Deserialize, Serialize};
use sys::lock;

/// Maximum number of statements that the history stores for each lease.
const MAX_STATEMENTS: usize = 20;
/// Maximum number of leases in the history. Above this number, the history removes the half with the oldest statements,
/// except for leases with open sessions.
const MAX_LEASES: usize = 1000;

/// A failed test's database, kept so that the user can inspect it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptDatabase {
    /// The database's current name.
    pub name: String,
    /// The test's name on one line. For a test without a name, this is the name of the database during the test.
    #[serde(default)]
    pub test: String,
    /// The database's template, if pgfresh knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Whether the database is left over from an earlier server whose data directory this server has taken over.
    /// Inherited databases aren't leases of this server.
    #[serde(skip)]
    pub inherited: bool,
    /// The test's last statements (20 at most). The newest comes last.
    pub statements: Vec<ExecutedStatement>,
}

/// The last statements for one database name, with the times when the gateway sent them. The newest comes last.
pub(crate) type StatementRing = Arc<Mutex<VecDeque<(Instant, ExecutedStatement)>>>;

/// The last statements of all leases, along with the databases kept after failed tests.
#[derive(Debug, Default)]
pub struct StatementHistory(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Statements by database name, as sessions requested it.
    rings: HashMap<String, StatementRing>,
    kept: Vec<KeptDatabase>,
}

impl State {
    /// Removes half of the leases, except those with open sessions. This is faster than searching for the oldest lease
    /// every time a new name appears.
    fn forget_older_half(&mut self) {
        let last = |ring: &StatementRing| lock(ring).back().map(|(begun, _)| *begun);
        let mut times: Vec<_> = self.rings.values().map(last).collect();
        let middle = times.len() / 2;
        let bound = *times.select_nth_unstable(middle).1;
        self.rings.retain(|_, ring| Arc::strong_count(ring) > 1 || last(ring) > bound);
    }
}

impl StatementHistory {
    /// Returns the ring buffer for statements in the database `name`.
    pub(crate) fn ring(&self, name: &str) -> StatementRing {
        let mut state = lock(&self.0);
        if state.rings.len() >= MAX_LEASES && !state.rings.contains_key(cut(name)) {
            state.forget_older_half();
        }
        Arc::clone(state.rings.entry(cut(name).to_owned()).or_default())
    }

    /// Returns the last statements of the lease `name`, which began at `since`. The newest comes last.
    #[must_use]
    pub fn of(&self, name: &str, since: Instant) -> Vec<ExecutedStatement> {
        let state = lock(&self.0);
        let Some(ring) = state.rings.get(cut(name)) else { return Vec::new() };
        // Skip the statements of earlier leases with the same name.
        let statements = lock(ring);
        statements.iter().filter(|(begun, _)| *begun >= since).map(|(_, ran)| ran.clone()).collect()
    }

    /// Removes kept databases that no longer exist, because a client released them or the pool needed room. Inherited
    /// databases stay.
    pub fn remove_missing_databases(&self, leases: &Leases) {
        lock(&self.0).kept.retain(|kept| kept.inherited || leases.is_kept(&kept.name));
    }

    /// Returns the names of the databases kept after earlier failures of `test`.
    #[must_use]
    pub fn kept_databases_of_test(&self, test: &str) -> Vec<String> {
        let state = lock(&self.0);
        let of_test = state.kept.iter().filter(|kept| !kept.inherited && kept.test == test);
        of_test.map(|kept| kept.name.clone()).collect()
    }

    /// Adds a kept database.
    pub fn add_kept_database(&self, kept: KeptDatabase) {
        lock(&self.0).kept.push(kept);
    }

    /// Returns the kept database whose current name is `name`.
    #[must_use]
    pub fn kept_database(&self, name: &str) -> Option<KeptDatabase> {
        lock(&self.0).kept.iter().find(|kept| kept.name == name).cloned()
    }

    /// Removes a kept database that no longer exists.
    pub fn remove_kept_database(&self, name: &str) {
        lock(&self.0).kept.retain(|kept| kept.name != name);
    }

    /// Returns all kept databases.
    #[must_use]
    pub fn kept_databases(&self) -> Vec<KeptDatabase> {
        lock(&self.0).kept.clone()
    }

    /// Removes the statements of the lease `name` after a database reset.
    pub fn clear(&self, name: &str) {
        if let Some(ring) = lock(&self.0).rings.get(cut(name)) {
            lock(ring).clear();
        }
    }
}

/// Adds a statement that the gateway sent to the server at `begun`.
pub(crate) fn add(ring: &StatementRing, begun: Instant, executed: ExecutedStatement) {
    let mut ring = lock(ring);
    if ring.len() == MAX_STATEMENTS {
        ring.pop_front();
    }
    ring.push_back((begun, executed));
}

/// Returns the seconds since 1970.
pub(crate) fn seconds_of(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn run(ring: &StatementRing, statement: &str, begun: Instant) {
        let statement = statement.to_owned();
        add(ring, begun, ExecutedStatement { statement, begun: 0.0, seconds: 0.001, error: None });
    }

    #[test]
    fn history_returns_last_statements_of_lease() {
        let history = StatementHistory::default();
        let (before, since) = (Instant::now(), Instant::now() + Duration::from_micros(1));
        let ring = history.ring("orders");
        run(&ring, "of another lease", before);
        for number in 0..30 {
            run(&ring, &number.to_string(), since);
        }
        let statements = history.of("orders", since);
        assert_eq!(statements.len(), MAX_STATEMENTS);
        assert_eq!((&*statements[0].statement, &*statements[19].statement), ("10", "29"));
        history.clear("orders");
        run(&ring, "of another lease", before);
        assert_eq!(history.of("orders", since), []);
    }

    #[test]
    fn history_forgets_least_recently_active_leases() {
        let history = StatementHistory::default();
        let now = Instant::now();
        let open = history.ring("open");
        for number in 0..MAX_LEASES {
            let begun = now + Duration::from_millis(number as u64);
            run(&history.ring(&number.to_string()), "x", begun);
        }
        run(&open, "x", now);
        let known = |name: &str| history.of(name, now).len();
        assert_eq!([known("0"), known("open"), known("998"), known("999")], [0, 1, 1, 1]);
        assert!(lock(&history.0).rings.len() <= MAX_LEASES / 2 + 2);
    }
}
