//! Makes room for another database when the data location is full, or refuses the client that waits for room.

use std::time::{Duration, Instant};

use super::database::Database;
use super::line::NameState;
use super::{DatabaseId, LeaseTable, Source};
use crate::error::LeaseError;
use crate::isolation::Isolation;

/// How long a client waits for room while no client gets a database. The wait starts again whenever a
/// client gets a database, because this client's turn will come as long as databases pass from client
/// to client. Otherwise, the wait must end, because clients may keep their databases indefinitely.
const ROOM_TIMEOUT: Duration = Duration::from_secs(1);

impl LeaseTable {
    /// Makes room for the client whose turn it is by removing an idle database or ending a lease without sessions.
    /// Returns false if all databases are in use.
    pub(super) fn evict_idle(&mut self, now: Instant) -> bool {
        let is_coming = |database: &Database| database.frees_room() || database.is_returning();
        if self.databases.busy().any(|(_, database)| is_coming(database)) {
            return true;
        }
        let Some(source) = self.next_source(None, now) else { return true };
        let other = |database: &Database| database.source != source;
        let is_idle = |database: &Database| other(database) || database.isolation == Isolation::Rollback;
        let idle = self.databases.ready().find(|(_, database)| is_idle(database));
        if let Some((id, retire)) = idle.map(|(id, database)| (id, other(database))) {
            self.unname(id, retire, None);
            return true;
        }
        // A lease can't end while the task that changes its database keeps failing.
        let deadline = |database: &Database| {
            database.lease().filter(|_| database.failures.is_none()).and_then(|lease| lease.deadline)
        };
        let lingers =
            self.databases.iter().filter_map(|(id, database)| Some((deadline(database)?, id))).min();
        let Some((_, id)) = lingers.or_else(|| self.oldest_kept()) else { return false };
        if let Some(lease) = self.databases.get_mut(id).and_then(Database::lease_mut) {
            lease.deadline = Some(now);
        }
        true
    }

    /// Returns the oldest sessionless database kept for a failed test, with the time when pgfresh kept it.
    fn oldest_kept(&self) -> Option<(Instant, DatabaseId)> {
        let unused = |database: &Database| {
            database.lease().filter(|lease| lease.sessions() == 0).and_then(|lease| lease.kept)
        };
        self.databases.iter().filter_map(|(id, database)| Some((unused(database)?, id))).min()
    }

    /// Refuses clients that have waited too long for another client to return its database and make room.
    pub(super) fn refuse_for_room(&mut self, source: &Source, now: Instant) {
        loop {
            let next = self.next_timeout(source);
            let Some((_, name)) = next.clone().filter(|(ends, _)| *ends <= now) else {
                return next.into_iter().for_each(|(ends, _)| self.look_at_lines(ends));
            };
            let leased = self.databases.iter().filter(|(_, database)| database.lease().is_some()).count();
            let is_kept = |database: &Database| database.lease().is_some_and(|lease| lease.kept.is_some());
            let kept = self.databases.iter().filter(|(_, database)| is_kept(database)).count();
            if let Some(supply) = self.supplies.get_mut(source) {
                supply.line.retain(|waiting| *waiting != name);
            }
            self.refuse_name(&name, LeaseError::Full { leased, kept, most: self.capacity }, now);
        }
    }

    /// Returns the name whose wait for room times out first, and when.
    fn next_timeout(&self, source: &Source) -> Option<(Instant, String)> {
        let line = &self.supplies.get(source)?.line;
        let ends = |name: &String| {
            let line = self.names.get(name)?;
            let waits = matches!(&line.state, NameState::Wanted(terms) if terms.source() == *source);
            let since = line.requests.front().filter(|_| waits)?.since;
            let moved = self.assigned_at.map_or(since, |assigned| assigned.max(since));
            Some((moved + ROOM_TIMEOUT, name.clone()))
        };
        // If several names time out simultaneously, this finds the first in the queue.
        line.iter().filter_map(ends).min_by_key(|(ends, _)| *ends)
    }
}
