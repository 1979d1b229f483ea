//! Determines whether lingering (keeping databases for a while
//! after their last sessions) is useful for the names of a run.

use std::time::{Duration, Instant};

use super::database::{Change, Database, DatabaseState};
use super::line::NameState;
use super::{DatabaseId, LeaseTable, Terms, Want};
use crate::isolation::Isolation;

/// How a run's names used their databases after the last sessions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LingerUse {
    /// How many times a name got a database that lingers for the default time.
    pub names: u64,
    /// Whether any client used or released one of these databases after its last session.
    pub is_used: bool,
    /// Total time that clients waited for new copies and wouldn't have waited without lingering, because an earlier
    /// client's database would have been free.
    pub waited: Duration,
}

/// Observes how names use their databases after the last sessions.
#[derive(Debug, Default)]
pub(crate) struct LingerWatch {
    pub(crate) seen: LingerUse,
    /// The default linger time.
    pub(crate) default: Duration,
    /// Maximum number of databases in use so far, sampled whenever a name had to wait.
    most_in_use: usize,
}

impl LingerWatch {
    /// Returns true if a lease on these terms lingers for the default time and its database can be recycled.
    fn counts(&self, terms: &Terms) -> bool {
        let is_default = terms.linger == self.default && !terms.linger.is_zero();
        is_default && !terms.retained && terms.isolation == Isolation::Clone && terms.template != "template1"
    }
}

impl LeaseTable {
    /// Records that a name on these terms got a database. Its first request had been waiting since `since`.
    pub(super) fn note_named(&mut self, terms: &Terms, since: Instant, is_avoidable: bool, now: Instant) {
        if self.linger_watch.counts(terms) {
            self.linger_watch.seen.names += 1;
            if is_avoidable {
                self.linger_watch.seen.waited += now.saturating_duration_since(since);
            }
        }
    }

    /// Records a request to a lease whose last session has ended or is ending.
    pub(super) fn note_use_after_last_session(&mut self, id: DatabaseId) {
        let Some(lease) = self.databases.get(id).and_then(Database::lease) else { return };
        let has_ended = lease.open == 0 && (lease.leaving > 0 || lease.deadline.is_some());
        self.linger_watch.seen.is_used |= has_ended && self.linger_watch.counts(&lease.terms);
    }

    /// Determines whether the request that has just started waiting would have found a database without lingering.
    /// That is the case if more databases were in use at some earlier time, because the surplus would be free now.
    pub(super) fn note_wait(&mut self, name: &str) {
        let Some(NameState::Wanted(terms)) = self.names.get(name).map(|line| line.state.clone()) else {
            return;
        };
        let source = terms.source();
        let is_in_use = |(_, database): &(DatabaseId, &Database)| {
            let has_client = match &database.state {
                DatabaseState::Leased(lease) => lease.sessions() > 0,
                DatabaseState::Changing(change) => matches!(change, Change::Naming(_)),
                _ => false,
            };
            has_client && database.source == source
        };
        let waiting = self.supplies.get(&source).map_or(0, |supply| supply.line.len());
        let in_use = self.databases.iter().filter(is_in_use).count() + waiting;
        let is_avoidable = in_use <= self.linger_watch.most_in_use;
        self.linger_watch.most_in_use = self.linger_watch.most_in_use.max(in_use);
        let request = self.names.get_mut(name).and_then(|line| line.requests.front_mut());
        if let Some(request) = request.filter(|request| matches!(request.want, Want::Session { .. })) {
            request.is_avoidable = is_avoidable;
        }
    }
}
