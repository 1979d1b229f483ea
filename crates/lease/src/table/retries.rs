//! Bounds how long requests wait for tasks that keep failing.
//!
//! The table retries a failed task until it succeeds, which may be never. A request waits through some retries, because
//! a lost connection or a short lack of space passes. Then it gets the error of the last attempt, and the table goes on
//! trying. A new request for the name makes the next attempt due at once, so the request soon has an answer: the
//! database if the attempt succeeds, otherwise the error.

use std::sync::Arc;
use std::time::Instant;

use super::database::{Database, Work};
use super::failures::Failures;
use super::line::Step;
use super::supply::LONGEST_PAUSE;
use super::{DatabaseId, LONGEST_RETRY, LeaseTable, Outcome, Source};
use crate::error::LeaseError;

impl LeaseTable {
    /// Schedules the next attempt of a database's failed task and refuses the requests that have waited too long.
    pub(super) fn retry(&mut self, id: DatabaseId, outcome: Outcome, now: Instant) {
        let Some(database) = self.databases.get_mut(id) else { return };
        let failures = Failures::add(&mut database.failures, now);
        database.error = Some(Arc::new(error_of(outcome)));
        database.work = Work::RetryAt(now + failures.pause(LONGEST_RETRY));
        self.look_at_lines(failures.refuse_at(failures.first));
        self.advance_name_of(id, now);
        // Don't expect this database to make room for others before the retry.
        self.serve_where_full(now);
    }

    /// Makes the next attempt of a failed task due at once, because a request has come for the database's name.
    pub(super) fn retry_for(&mut self, name: &str, now: Instant) {
        let failing = self.database_named(name).and_then(|id| self.databases.get_mut(id));
        let Some(Database { work, failures: Some(failures), .. }) = failing else { return };
        if matches!(work, Work::RetryAt(_)) {
            *work = Work::Due;
        }
        let refuse_at = failures.refuse_at(now);
        self.look_at_lines(refuse_at);
    }

    /// Returns when to refuse a request that has waited since `since` for this database's failing task. Returns `None`
    /// if the task hasn't failed.
    pub(super) fn refuse_at(&self, id: DatabaseId, since: Instant) -> Option<Instant> {
        Some(self.databases.get(id)?.failures?.refuse_at(since))
    }

    /// Serves a request for a name while a task changes its database.
    pub(super) fn step_changing(&mut self, name: &str, id: DatabaseId, now: Instant) -> Option<Step> {
        let since = self.names.get(name)?.requests.front()?.since;
        let error = self.databases.get(id)?.error.as_ref();
        match error.filter(|_| self.refuse_at(id, since).is_some_and(|time| time <= now)) {
            Some(error) => self.refuse_head(name, blocked(name, Arc::clone(error))),
            None => Some(Step::Wait),
        }
    }

    /// Handles a failure to create a database: delays the next attempt and reports the error to the first waiting
    /// client, or to all of them if the attempts have failed for too long.
    pub(super) fn not_made(&mut self, source: &Source, outcome: Outcome, now: Instant) {
        let Some(supply) = self.supplies.get_mut(source) else { return };
        let failures = Failures::add(&mut supply.failures, now);
        self.make_later(source, failures.pause(LONGEST_PAUSE), now);
        if failures.are_lasting(now) {
            let error = Arc::new(error_of(outcome));
            if let Some(supply) = self.supplies.get_mut(source) {
                supply.error = Some(Arc::clone(&error));
            }
            while let Some(name) = self.take_first(source) {
                self.refuse_name(&name, blocked(&name, Arc::clone(&error)), now);
            }
        } else if let Outcome::Failed(error) = outcome
            && let Some(name) = self.take_first(source)
        {
            self.refuse_name(&name, error, now);
        }
    }

    /// Returns the error for a request that has come before the last attempt of a blocked source.
    pub(super) fn blocked_by(&self, source: &Source, name: &str) -> Option<LeaseError> {
        let supply = self.supplies.get(source)?;
        let since = self.names.get(name)?.requests.front()?.since;
        let error = supply
            .error
            .as_ref()
            .filter(|_| supply.failures.is_some_and(|failures| since <= failures.last))?;
        Some(blocked(name, Arc::clone(error)))
    }

    /// Returns true if the name's lease should try another database after one was unfit. Refuses all requests if the
    /// name has received only unfit databases for too long.
    pub(super) fn tries_another(&mut self, name: &str, outcome: Outcome, now: Instant) -> bool {
        let Some(line) = self.names.get_mut(name) else { return true };
        if !Failures::add(&mut line.unfit, now).are_lasting(now) {
            return true;
        }
        let error = Arc::new(error_of(outcome));
        while self.refuse_head(name, blocked(name, Arc::clone(&error))).is_some() {}
        false
    }
}

fn blocked(name: &str, source: Arc<LeaseError>) -> LeaseError {
    LeaseError::Blocked { name: name.to_owned(), source }
}

/// Returns the error for clients that wait for a task with this outcome.
fn error_of(outcome: Outcome) -> LeaseError {
    match outcome {
        Outcome::Failed(error) => error,
        Outcome::Doubt(reason) => LeaseError::Unfit(reason),
        _ => LeaseError::Unfit("it changed before a client had it"),
    }
}
