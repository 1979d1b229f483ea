//! Learns how many copies a run's clients take before pgfresh can make new ones, so that the next run makes that many
//! before its first client arrives.

use std::time::{Duration, Instant};

use super::database::{Database, DatabaseState};
use super::{DatabaseId, LeaseTable, Source};

/// Maximum number of copies made from one source before its clients arrive.
const MOST: usize = 128;
/// How long the processors are left to the test runner first. A
/// command that doesn't need databases has often finished by then.
const HEAD_START: Duration = Duration::from_millis(100);

/// The copies of one source, compared with its clients' demand.
#[derive(Debug, Default)]
pub(super) struct Stock {
    /// Number of copies to make even if no client requests them, counting from the first copy.
    planned: usize,
    /// When to start making the planned copies.
    begins_at: Option<Instant>,
    /// Number of copies made so far.
    made: usize,
    /// Average time to make a copy, weighted toward recent ones.
    copy_time: Duration,
    /// Time spent making the copies that clients took, minus the time available for making them while no client was
    /// waiting.
    lead: Duration,
    /// When the last waiting client received its database. `None` while a client is waiting.
    idle_since: Option<Instant>,
    /// Number of copies taken since `lead` was last zero. With one fewer, a client would have had to wait.
    burst: usize,
    /// The largest `burst` so far.
    needed: usize,
}

impl Stock {
    /// Records that a task made a copy and how long it took.
    pub(super) fn made(&mut self, took: Duration) {
        self.copy_time = if self.made == 0 { took } else { (self.copy_time * 7 + took) / 8 };
        self.made += 1;
    }

    /// Records that a client arrived while no other client was waiting.
    pub(super) fn client_came(&mut self, now: Instant) {
        if let Some(since) = self.idle_since.take() {
            self.lead = self.lead.saturating_sub(now.saturating_duration_since(since));
            if self.lead.is_zero() {
                self.burst = 0;
            }
        }
    }

    /// Records that no client is waiting anymore.
    pub(super) fn all_served(&mut self, now: Instant) {
        self.idle_since = Some(now);
    }

    /// Records that a client took a copy that no client had used before.
    pub(super) fn took_new(&mut self) {
        self.lead += self.copy_time;
        self.burst += 1;
        self.needed = self.needed.max(self.burst).min(MOST);
    }

    /// Returns how many used databases may remain ready after a reset.
    pub(super) fn keeps(&self) -> usize {
        self.planned
    }

    /// Returns how many planned copies are still missing, not counting those that tasks are `making` now.
    pub(super) fn lacks(&self, making: usize) -> usize {
        self.planned.saturating_sub(self.made + making)
    }

    /// Returns when the planned copies become due, if that is in the future.
    pub(super) fn waits_until(&self, now: Instant) -> Option<Instant> {
        self.begins_at.filter(|begins_at| *begins_at > now)
    }
}

impl LeaseTable {
    /// Plans to make this many copies before clients arrive, using at most half of the room for databases.
    pub(crate) fn stock_up(&mut self, source: &Source, copies: usize, now: Instant) {
        let planned = copies.min(MOST).min(self.capacity / 2);
        if let Some(supply) = self.supplies.get_mut(source) {
            supply.stock.planned = planned;
            supply.stock.begins_at = Some(now + HEAD_START);
        }
    }

    /// Returns how many copies should have existed before the first client arrived so that no client would have had to
    /// wait.
    pub(crate) fn needed_copies(&self, source: &Source) -> usize {
        self.supplies.get(source).map_or(0, |supply| supply.stock.needed)
    }

    /// Returns true if a task is making this copy only because earlier
    /// runs needed more copies. This copy can give way to other programs.
    pub(crate) fn is_for_stock(&self, id: DatabaseId) -> bool {
        let Some(Database { source, state: DatabaseState::Creating, .. }) = self.databases.get(id) else {
            return false;
        };
        let supply = self.supplies.get(source);
        supply.is_some_and(|supply| supply.line.is_empty() && self.ready(source) >= supply.wanted)
    }
}
