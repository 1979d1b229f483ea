//! Records the statements of each lease since it began or was reset, if a client asks for it or tests have a budget.
//!
//! A test lasts from the beginning of its lease, or the last reset, until the next reset or the end of the lease. A
//! client that ends its test by name over HTTP learns at once whether the test exceeded its budget. The recorder keeps
//! all others for the end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use lease::{Leases, cut};
use sys::lock;

use crate::budget::Budget;
use crate::record::{StatementRecord, TestMeasurement};

/// Number of recorded leases from which on the recorder searches for ended ones.
const SWEEP: usize = 512;
/// Most reports of tests beyond their budget.
const TESTS: usize = 1000;

/// Test that exceeded its budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestOverBudget {
    /// Name of the test's database.
    pub database: String,
    /// Report for the user: see [`TestMeasurement::message`].
    pub message: String,
}

/// Record that all sessions of a lease share.
pub(crate) type SharedRecord = Arc<Mutex<StatementRecord>>;

/// Records the statements of leases.
#[derive(Debug, Default)]
pub struct StatementRecorder {
    /// Budget of each test. If it limits anything, the recorder records all leases.
    budget: Budget,
    /// Whether any lease is recorded.
    in_use: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Records by database name. Some of their leases may have ended meanwhile.
    records: HashMap<String, Recorded>,
    over: Vec<TestOverBudget>,
    /// Number of tests beyond their budget without room in `over`.
    more: usize,
    sweep_at: usize,
}

/// Record of one lease.
#[derive(Debug)]
struct Recorded {
    /// Moment when the lease began; `None` until its first session.
    since: Option<Instant>,
    record: SharedRecord,
}

impl StatementRecorder {
    /// Creates a recorder for tests that each have this budget.
    #[must_use]
    pub fn new(budget: Budget) -> Self {
        Self { budget, ..Self::default() }
    }

    /// Whether the recorder records all leases.
    #[must_use]
    pub fn records_all(&self) -> bool {
        !self.budget.is_empty()
    }

    /// Records the lease `name`, which has just begun.
    pub fn record(&self, name: &str, leases: &Leases) {
        self.in_use.store(true, Ordering::Relaxed);
        let since = leases.leased(name).map(|(since, _)| since);
        let mut state = lock(&self.state);
        if let Some(before) = state.records.insert(cut(name).to_owned(), Recorded::new(since)) {
            state.end(name, &before, &self.budget);
        }
    }

    /// Returns the record for a new session with `name`, if the lease is recorded. `asked` means that the session asks
    /// for it. `reset` means that the session has had its database reset, so that another test begins.
    pub(crate) fn of_session(
        &self,
        name: &str,
        (asked, reset): (bool, bool),
        leases: &Leases,
    ) -> Option<SharedRecord> {
        if !asked && !self.records_all() && !self.in_use.load(Ordering::Relaxed) {
            return None;
        }
        if asked {
            self.in_use.store(true, Ordering::Relaxed);
        }
        let (since, sessions) = leases.leased(name)?;
        let mut state = lock(&self.state);
        state.sweep(&self.budget, leases);
        let known = match state.records.get_mut(cut(name)) {
            Some(known) => *known.since.get_or_insert(since) == since,
            None => false,
        };
        if (reset || !known)
            && let Some(before) = state.records.remove(cut(name))
        {
            state.end(name, &before, &self.budget);
            if known {
                state.records.insert(cut(name).to_owned(), Recorded::new(Some(since)));
            }
        }
        if !known && (asked || self.records_all()) {
            let recorded = Recorded::new(Some(since));
            if sessions > 1 && !self.records_all() {
                // The recorder does not see statements of the sessions that are open already.
                lock(&recorded.record).lose();
            }
            state.records.insert(cut(name).to_owned(), recorded);
        }
        state.records.get(cut(name)).map(|recorded| Arc::clone(&recorded.record))
    }

    /// Measures the lease `name` against `own`, and against the budget of all tests for each limit that `own` lacks.
    /// Returns `None` if the lease is not recorded.
    #[must_use]
    pub fn measure(&self, name: &str, own: &Budget, leases: &Leases) -> Option<TestMeasurement> {
        let since = leases.leased(name).map(|(since, _)| since);
        let state = lock(&self.state);
        let recorded = state.records.get(cut(name));
        let recorded = recorded
            .filter(|recorded| recorded.since.is_none() || since.is_none() || recorded.since == since);
        match recorded {
            Some(recorded) => Some(recorded.measure(&own.or(self.budget))),
            // The lease has had no session yet.
            None if self.records_all() => Some(Recorded::new(None).measure(own)),
            None => None,
        }
    }

    /// Ends the test that used `name`. `told` means that the client knows the result. `goes_on` means that the lease
    /// was reset, so that another test begins.
    pub fn ended(&self, name: &str, told: bool, goes_on: bool) {
        let mut state = lock(&self.state);
        let Some(before) = state.records.remove(cut(name)) else { return };
        if goes_on {
            state.records.insert(cut(name).to_owned(), Recorded::new(None));
        }
        if !told {
            state.end(name, &before, &self.budget);
        }
    }

    /// Ends all tests. Returns reports of the tests beyond their budget whose clients do not know it, and the number of
    /// further such tests.
    #[must_use]
    pub fn finish(&self) -> (Vec<TestOverBudget>, usize) {
        let mut state = lock(&self.state);
        let mut rest: Vec<_> = std::mem::take(&mut state.records).into_iter().collect();
        rest.sort_by(|(one, _), (other, _)| one.cmp(other));
        for (name, recorded) in rest {
            state.end(&name, &recorded, &self.budget);
        }
        (std::mem::take(&mut state.over), std::mem::take(&mut state.more))
    }
}

impl State {
    /// Adds a report if the ended test exceeded its budget.
    fn end(&mut self, name: &str, recorded: &Recorded, budget: &Budget) {
        let Some(message) = recorded.beyond(budget) else { return };
        tracing::info!(database = name, exceeded = message.lines().next(), "a test exceeded its budget");
        if self.over.len() >= TESTS {
            self.more += 1;
            return;
        }
        self.over.push(TestOverBudget { database: cut(name).to_owned(), message });
    }

    /// Removes leases that have ended, once there are many, because no event tells of their end.
    fn sweep(&mut self, budget: &Budget, leases: &Leases) {
        if self.records.len() < self.sweep_at.max(SWEEP) {
            return;
        }
        let is_over = |name: &str, recorded: &Recorded| {
            let since = leases.leased(name).map(|(since, _)| since);
            recorded.since.is_some() && recorded.since != since
        };
        let over = self.records.extract_if(|name, recorded| is_over(name, recorded));
        for (name, recorded) in over.collect::<Vec<_>>() {
            self.end(&name, &recorded, budget);
        }
        self.sweep_at = 2 * self.records.len();
    }
}

impl Recorded {
    fn new(since: Option<Instant>) -> Self {
        Self { since, record: SharedRecord::default() }
    }

    /// Report for the user, if the test has exceeded the budget. Otherwise its statements are not collected.
    fn beyond(&self, budget: &Budget) -> Option<String> {
        let record = lock(&self.record);
        let exceeded = Some(record.exceeded(budget)).filter(|exceeded| !exceeded.is_empty())?;
        TestMeasurement { statements: record.statements(), exceeded }.message()
    }

    fn measure(&self, budget: &Budget) -> TestMeasurement {
        let record = lock(&self.record);
        TestMeasurement { statements: record.statements(), exceeded: record.exceeded(budget) }
    }
}
