//! The statements of each lease since it began or was reset, where they are wanted: because a client has asked for it, or
//! because all tests have a budget.
//!
//! A test lasts from the begin of its lease, or the last reset, until the next reset or the end of the lease. Who ends it
//! over HTTP and says its name hears at once whether it went beyond its budget; all others are noted for the end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use lease::{Leases, cut};
use sys::lock;

use crate::budget::Budget;
use crate::record::{StatementRecord, TestMeasurement};

/// Leases from which on those that are over are looked for.
const SWEEP: usize = 512;
/// Tests beyond their budget that are kept.
const TESTS: usize = 1000;

/// A test that went beyond its budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestOverBudget {
    /// The name of its database.
    pub database: String,
    /// What to tell of it: see [`TestMeasurement::message`].
    pub message: String,
}

/// Where the statements of a session are counted.
pub(crate) type SharedRecord = Arc<Mutex<StatementRecord>>;

/// The statements of all leases that are recorded.
#[derive(Debug, Default)]
pub struct StatementRecorder {
    /// Of each test. Where it limits anything, all leases are recorded.
    budget: Budget,
    /// Some lease is recorded.
    in_use: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By name, of leases that may be over meanwhile.
    records: HashMap<String, Recorded>,
    over: Vec<TestOverBudget>,
    /// Tests beyond their budget for which there was no room.
    more: usize,
    sweep_at: usize,
}

/// A lease that is recorded.
#[derive(Debug)]
struct Recorded {
    /// When the lease began; `None` until that is known.
    since: Option<Instant>,
    record: SharedRecord,
}

impl StatementRecorder {
    /// One for tests that each have this budget.
    #[must_use]
    pub fn new(budget: Budget) -> Self {
        Self { budget, ..Self::default() }
    }

    /// Whether all leases are recorded.
    #[must_use]
    pub fn records_all(&self) -> bool {
        !self.budget.is_empty()
    }

    /// Records the lease `name` from now on: it has just begun.
    pub fn record(&self, name: &str, leases: &Leases) {
        self.in_use.store(true, Ordering::Relaxed);
        let since = leases.leased(name).map(|(since, _)| since);
        let mut state = lock(&self.state);
        if let Some(before) = state.records.insert(cut(name).to_owned(), Recorded::new(since)) {
            state.end(name, &before, &self.budget);
        }
    }

    /// Where the statements of a new session with `name` are counted, if they are. `asked`: the session asks for it.
    /// `reset`: it has had its database reset, so that another test begins.
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
                // Those that are there already are not followed.
                lock(&recorded.record).lose();
            }
            state.records.insert(cut(name).to_owned(), recorded);
        }
        state.records.get(cut(name)).map(|recorded| Arc::clone(&recorded.record))
    }

    /// What the lease `name` has run, measured against `own`, and against the budget of all tests where that has no limit;
    /// `None` if it is not recorded.
    #[must_use]
    pub fn measure(&self, name: &str, own: &Budget, leases: &Leases) -> Option<TestMeasurement> {
        let since = leases.leased(name).map(|(since, _)| since);
        let state = lock(&self.state);
        let recorded = state.records.get(cut(name));
        let recorded = recorded
            .filter(|recorded| recorded.since.is_none() || since.is_none() || recorded.since == since);
        match recorded {
            Some(recorded) => Some(recorded.measure(&own.or(self.budget))),
            // It has had no session yet.
            None if self.records_all() => Some(Recorded::new(None).measure(own)),
            None => None,
        }
    }

    /// The test that has used `name` is over. `told`: who ended it knows whether it was within its budget. `goes_on`: the
    /// lease was reset, and another test begins.
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

    /// The tests beyond their budget of which no client was told, those that are not over included, and how many more there
    /// were.
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
    /// Notes a test that is over, if it went beyond its budget.
    fn end(&mut self, name: &str, recorded: &Recorded, budget: &Budget) {
        let Some(message) = recorded.beyond(budget) else { return };
        tracing::info!(database = name, exceeded = message.lines().next(), "a test exceeded its budget");
        if self.over.len() >= TESTS {
            self.more += 1;
            return;
        }
        self.over.push(TestOverBudget { database: cut(name).to_owned(), message });
    }

    /// Lets go of leases that are over, once there are many: no event tells of their end.
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

    /// What to tell of it, if it is beyond the budget. Otherwise its statements are not looked at.
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
