//! Lets ready databases get more backends while no client needs the processors.
//!
//! pgfresh makes many copies without backends: those for which a client waits, and those made ahead of the first client.

use std::time::{Duration, Instant};

use super::database::{Change, Database, DatabaseState, Work};
use super::{DatabaseId, LeaseTable, Outcome, Source, Task, TaskKind};
use crate::isolation::Isolation;

/// How long no client may have received a database. Tests that run back to back need the processors for themselves.
const REST: Duration = Duration::from_millis(10);

impl LeaseTable {
    /// Returns the time from which on the table has ready databases to spare for a task that starts backends. Returns
    /// `None` while other tasks are running or due, and if no database is ready.
    pub(crate) fn warms_at(&self, now: Instant) -> Option<Instant> {
        let is_making = self.supplies.values().any(|supply| supply.stock.lacks(0) > 0);
        let has_ready = self.databases.ready().next().is_some();
        if self.closed.is_some() || is_making || !has_ready || self.databases.busy().next().is_some() {
            return None;
        }
        let starts = self.supplies.values().filter_map(|supply| supply.stock.waits_until(now));
        Some(starts.chain(self.assigned_at.map(|at| at + REST)).max().unwrap_or(now))
    }

    /// Returns the ready databases that may get more backends, in the order in which clients will receive them.
    pub(super) fn may_be_warmed(&self) -> impl Iterator<Item = DatabaseId> {
        let is_open = |(_, database): &(DatabaseId, &Database)| {
            database.isolation == Isolation::Clone && database.name.is_none()
        };
        self.databases.ready().filter(is_open).map(|(id, _)| id)
    }

    /// Starts the task that gives a ready database more backends.
    pub(super) fn begin_warming(&mut self, id: DatabaseId) -> Option<Task> {
        let database = self.databases.get_mut(id)?;
        if database.state != DatabaseState::Ready {
            return None;
        }
        (database.state, database.work) = (DatabaseState::Changing(Change::Warming), Work::Running);
        Some(Task { database: id, kind: TaskKind::WarmUp })
    }

    /// Starts the task that gives more backends to the first ready database that `lacks` some.
    pub(crate) fn warm_first(&mut self, lacks: impl Fn(DatabaseId) -> bool) -> Option<Task> {
        let first = self.may_be_warmed().find(|id| lacks(*id))?;
        self.begin_warming(first)
    }

    /// Returns how many ready databases of this source are getting more backends.
    pub(crate) fn warming(&self, source: &Source) -> usize {
        let is_warming = |(_, database): &(DatabaseId, &Database)| {
            database.source == *source && database.state == DatabaseState::Changing(Change::Warming)
        };
        self.databases.busy().filter(is_warming).count()
    }

    /// Makes a database ready again after the task. The database still equals its template, even if no backend
    /// started.
    pub(super) fn warmed(&mut self, id: DatabaseId, outcome: &Outcome, now: Instant) {
        if matches!(outcome, Outcome::DroppedOrRenamed) {
            return self.forget(id);
        }
        self.set_state(id, DatabaseState::Ready);
        if !self.keeps_ready(id, now) {
            self.unname(id, true, None);
        }
    }
}
