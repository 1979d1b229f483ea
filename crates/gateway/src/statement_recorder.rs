//! Records the statements of each test, so that clients can compare them with a budget.
//!
//! A test begins when its lease begins or is reset, and ends at the next reset or when the lease ends. The recorder is
//! active only if a client requests it or if all tests have a budget. A client that ends a test by name over HTTP
//! immediately learns whether the test exceeded its budget. Reports about all other tests are stored until pgfresh
//! exits.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use lease::{LaggingRead, Leases, cut};
use sys::lock;

use crate::budget::Budget;
use crate::record::{StatementRecord, TestMeasurement};
use crate::session_settings::SessionSettings;

/// Number of recorded leases at which the recorder starts removing ended ones.
const SWEEP_THRESHOLD: usize = 512;
/// Maximum number of reports about tests that exceeded their budget.
const MAX_REPORTS: usize = 1000;

/// A test that exceeded its budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestOverBudget {
    /// Name of the test's database.
    pub database: String,
    /// Report for the user: see [`TestMeasurement::message`].
    pub message: String,
}

/// A failed test that read from a lagging replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestOnLaggingReplica {
    /// The test's name on one line, or the database name for a test without a name.
    pub test: String,
    /// The first statements that ran on the replica while it lagged.
    pub reads: Vec<LaggingRead>,
}

/// A record shared by all sessions of a lease.
pub(crate) type SharedRecord = Arc<Mutex<StatementRecord>>;

/// Recorder for the statements of all leases.
#[derive(Debug, Default)]
pub struct StatementRecorder {
    /// Budget for each test. If there is any limit, the recorder records all leases.
    budget: Budget,
    /// Whether any lease has been recorded.
    in_use: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Records by database name. Some of these leases may have ended.
    records: HashMap<String, Recorded>,
    over: Vec<TestOverBudget>,
    /// Number of tests that exceeded their budget when `over` was already full.
    more: usize,
    /// Failed tests that read from a lagging replica.
    lagging: Vec<TestOnLaggingReplica>,
    sweep_at: usize,
}

/// The record of one lease.
#[derive(Debug)]
struct Recorded {
    /// When the lease began, or `None` before its first session.
    since: Option<Instant>,
    record: SharedRecord,
}

impl StatementRecorder {
    /// Creates a recorder with a `budget` for each test.
    #[must_use]
    pub fn new(budget: Budget) -> Self {
        Self { budget, ..Self::default() }
    }

    /// Returns true if the recorder records all leases.
    #[must_use]
    pub fn records_all(&self) -> bool {
        !self.budget.is_empty()
    }

    /// Returns true if all leases have a budget, but there has been no lease.
    #[must_use]
    pub fn has_unused_budget(&self) -> bool {
        self.records_all() && !self.in_use.load(Ordering::Relaxed)
    }

    /// Starts recording the lease `name`, which has just begun.
    pub fn record(&self, name: &str, leases: &Leases) {
        self.in_use.store(true, Ordering::Relaxed);
        let since = leases.leased(name).map(|(since, _)| since);
        let mut state = lock(&self.state);
        if let Some(before) = state.records.insert(cut(name).to_owned(), Recorded::new(since)) {
            state.end(name, &before, &self.budget);
        }
    }

    /// Returns the record for a new session of the lease `name`, or `None` if the lease isn't recorded.
    ///
    /// A session can request a record in its `settings`. If the session has requested a database reset, a new test
    /// begins.
    pub(crate) fn record_for_session(
        &self,
        name: &str,
        settings: &SessionSettings,
        leases: &Leases,
    ) -> Option<SharedRecord> {
        let (asked, reset) = (settings.record, settings.reset);
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
            self.in_use.store(true, Ordering::Relaxed);
            let recorded = Recorded::new(Some(since));
            if sessions > 1 && !self.records_all() {
                // The record misses the statements of sessions that are already open, so it is incomplete.
                lock(&recorded.record).mark_incomplete();
            }
            state.records.insert(cut(name).to_owned(), recorded);
        }
        state.records.get(cut(name)).map(|recorded| Arc::clone(&recorded.record))
    }

    /// Compares the statements of the lease `name` with the budget `own`, taking missing limits from the budget for all
    /// tests. Returns `None` if the lease isn't recorded.
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

    /// Ends the test that used the lease `name`. `is_reported` means that the client already knows the result.
    /// `continues` means that the lease continues after a reset, so that a new test begins.
    pub fn test_ended(&self, name: &str, is_reported: bool, continues: bool) {
        let mut state = lock(&self.state);
        let Some(before) = state.records.remove(cut(name)) else { return };
        if continues {
            state.records.insert(cut(name).to_owned(), Recorded::new(None));
        }
        if !is_reported {
            state.end(name, &before, &self.budget);
        }
    }

    /// Stores a failed test that read from a lagging replica.
    pub fn add_lagging(&self, test: TestOnLaggingReplica) {
        let mut state = lock(&self.state);
        if state.lagging.len() < MAX_REPORTS {
            state.lagging.push(test);
        }
    }

    /// Returns the failed tests that read from a lagging replica.
    #[must_use]
    pub fn lagging(&self) -> Vec<TestOnLaggingReplica> {
        lock(&self.state).lagging.clone()
    }

    /// Ends all tests. Returns the reports about tests that exceeded their budget without their clients knowing, along
    /// with the number of such tests without a stored report.
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
        let Some(message) = recorded.excess_report(budget) else { return };
        tracing::info!(database = name, exceeded = message.lines().next(), "a test exceeded its budget");
        if self.over.len() >= MAX_REPORTS {
            self.more += 1;
            return;
        }
        self.over.push(TestOverBudget { database: cut(name).to_owned(), message });
    }

    /// Removes the records of ended leases if there are many records. The recorder doesn't notice when a lease ends, so
    /// records would accumulate.
    fn sweep(&mut self, budget: &Budget, leases: &Leases) {
        if self.records.len() < self.sweep_at.max(SWEEP_THRESHOLD) {
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

    /// Returns a report for the user if the test exceeded the budget. Only then are the statements collected.
    fn excess_report(&self, budget: &Budget) -> Option<String> {
        let record = lock(&self.record);
        let exceeded = Some(record.exceeded(budget)).filter(|exceeded| !exceeded.is_empty())?;
        TestMeasurement { statements: record.statements(), exceeded }.message()
    }

    fn measure(&self, budget: &Budget) -> TestMeasurement {
        let record = lock(&self.record);
        TestMeasurement { statements: record.statements(), exceeded: record.exceeded(budget) }
    }
}
