//! Learns how many copies the clients of a run take faster than pgfresh makes them. The next run makes that many before its first
//! client comes.

use std::time::{Duration, Instant};

use super::{DatabaseId, LeaseTable, Source};

/// Maximum number of copies that a source makes before its clients come.
const MOST: usize = 128;
/// How long the server leaves the processors to the test runner first. A command that needs no databases has often ended by then.
const HEAD_START: Duration = Duration::from_millis(100);

/// The copies of one source, compared with what its clients took.
#[derive(Debug, Default)]
pub(super) struct Stock {
    /// Number of copies to make, counted from the first one, although no client has asked for them.
    planned: usize,
    /// When to begin with the planned copies.
    begins_at: Option<Instant>,
    /// Number of copies made so far.
    made: usize,
    /// Average time to make a copy, with more weight for recent ones.
    copy_time: Duration,
    /// Time to make the copies that clients took, minus the time in which pgfresh could have made them while no client waited.
    lead: Duration,
    /// When the last waiting client got its database. `None` while a client waits.
    idle_since: Option<Instant>,
    /// Number of copies that clients took since `lead` was last zero: with one less, a client would have had to wait for a copy.
    burst: usize,
    /// The largest `burst` so far.
    needed: usize,
}

impl Stock {
    /// Records that a task made a copy in this time.
    pub(super) fn made(&mut self, took: Duration) {
        self.copy_time = if self.made == 0 { took } else { (self.copy_time * 7 + took) / 8 };
        self.made += 1;
    }

    /// Records that a client came while no other one waited.
    pub(super) fn client_came(&mut self, now: Instant) {
        if let Some(since) = self.idle_since.take() {
            self.lead = self.lead.saturating_sub(now.saturating_duration_since(since));
            if self.lead.is_zero() {
                self.burst = 0;
            }
        }
    }

    /// Records that no client waits any more.
    pub(super) fn all_served(&mut self, now: Instant) {
        self.idle_since = Some(now);
    }

    /// Records that a client took a copy that no client had before.
    pub(super) fn took_new(&mut self) {
        self.lead += self.copy_time;
        self.burst += 1;
        self.needed = self.needed.max(self.burst).min(MOST);
    }

    /// Returns how many databases that have had a client may stay ready.
    pub(super) fn keeps(&self) -> usize {
        self.planned
    }

    /// Returns the number of planned copies that no task has made yet, apart from those that tasks are `making` now.
    pub(super) fn lacks(&self, making: usize) -> usize {
        self.planned.saturating_sub(self.made + making)
    }

    /// Returns the time until which no planned copy is due.
    pub(super) fn waits_until(&self, now: Instant) -> Option<Instant> {
        self.begins_at.filter(|begins_at| *begins_at > now)
    }
}

impl LeaseTable {
    /// Plans to make this many copies before clients come. They take up at most half of the room for databases.
    pub(crate) fn stock_up(&mut self, source: &Source, copies: usize, now: Instant) {
        let planned = copies.min(MOST).min(self.capacity / 2);
        if let Some(supply) = self.supplies.get_mut(source) {
            supply.stock.planned = planned;
            supply.stock.begins_at = Some(now + HEAD_START);
        }
    }

    /// Returns how many copies should have been ready before the first client, so that no client had to wait.
    pub(crate) fn needed_copies(&self, source: &Source) -> usize {
        self.supplies.get(source).map_or(0, |supply| supply.stock.needed)
    }

    /// Whether a task makes this copy only because earlier runs needed more copies. Such a copy can wait for other programs.
    pub(crate) fn is_for_stock(&self, id: DatabaseId) -> bool {
        let source = self.databases.get(id).map(|database| &database.source);
        let supply = source.and_then(|source| self.supplies.get(source));
        supply.is_some_and(|supply| {
            supply.line.is_empty() && source.is_some_and(|source| self.ready(source) >= supply.wanted)
        })
    }
}
