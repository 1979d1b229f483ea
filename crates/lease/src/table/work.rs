//! Decides which background task runs next, and when.

use std::time::Instant;

use super::database::{Change, Closes, Database, DatabaseState, Then, Work};
use super::line::{NameState, refused};
use super::{Closing, DatabaseId, LeaseTable, Task, TaskKind, Terms, Want};
use crate::isolation::Isolation;

/// Number of maintenance workers. Creating or dropping a database takes tens of milliseconds, so one worker always
/// remains free for other tasks. A client may be waiting for a reset, which takes just one millisecond.
pub(crate) const WORKERS: usize = 4;
/// How many databases may wait to be removed before this becomes more urgent than creating others. Each takes up
/// several megabytes until it is gone.
const BACKLOG: usize = 16;

impl LeaseTable {
    /// Returns the most urgent background task. If none is due, returns the earliest time
    /// when a task may be due, or `None` if no task can be due before the next event.
    pub(crate) fn next_task(&mut self, now: Instant) -> Result<Task, Option<Instant>> {
        self.end_leases(now);
        // An overdue copy comes before everything else; otherwise, a
        // steady stream of ending leases could leave no time for the copy.
        if self.is_copy_overdue(now)
            && !self.is_making_most()
            && let Ok(task) = self.next_to_make(now)
        {
            return Ok(task);
        }
        if let Some(task) = self.due(now, |state| !matches!(state, DatabaseState::Retiring)) {
            return Ok(task);
        }
        if self.is_making_most() {
            return Err(self.next_time());
        }
        let is_retiring = |(_, database): &(DatabaseId, &Database)| database.state == DatabaseState::Retiring;
        let retiring = self.databases.busy().filter(is_retiring);
        if retiring.count() > BACKLOG
            && let Some(task) = self.due(now, |state| matches!(state, DatabaseState::Retiring))
        {
            return Ok(task);
        }
        let make = if self.closed.is_some() { Err(None) } else { self.next_to_make(now) };
        let soonest = match make {
            Ok(task) => return Ok(task),
            Err(soonest) => soonest,
        };
        if let Some(task) = self.due(now, |state| matches!(state, DatabaseState::Retiring)) {
            return Ok(task);
        }
        Err(self.next_time().into_iter().chain(soonest).min())
    }

    /// Returns true if as many databases as allowed are already being created or dropped.
    pub(super) fn is_making_most(&self) -> bool {
        let takes_long = |(_, database): &(DatabaseId, &Database)| {
            database.work == Work::Running
                && !database.gives_way
                && matches!(database.state, DatabaseState::Creating | DatabaseState::Retiring)
        };
        self.databases.busy().filter(takes_long).count() >= WORKERS - 1
    }

    /// Ends all leases that are past their deadlines.
    fn end_leases(&mut self, now: Instant) {
        while let Some((_, id)) = self.databases.next_end().filter(|(end, _)| *end <= now) {
            self.end_lease(id, false);
        }
    }

    /// Ends a lease and starts making its database ready for the next one. If sessions `stay` in the database, or if
    /// the lease has its own server, the database is removed instead.
    pub(super) fn end_lease(&mut self, id: DatabaseId, stay: bool) {
        let Some(database) = self.databases.get_mut(id) else { return };
        match database.isolation {
            Isolation::Rollback if !stay => {
                database.state = DatabaseState::Resetting(Then::Ready);
                database.work = Work::Due;
            }
            Isolation::Clone | Isolation::Rollback => self.unname(id, stay, None),
            Isolation::Server => self.unname(id, true, None),
        }
    }

    /// Starts removing the lease's name from a database. Afterwards, the table removes the database
    /// if `retire` is true, and gives the name another database if there are terms for it (`again`).
    pub(super) fn unname(&mut self, id: DatabaseId, retire: bool, again: Option<Terms>) {
        let Some(database) = self.databases.get_mut(id) else { return };
        database.terms = again;
        database.state = DatabaseState::Changing(Change::Unnaming { retire });
        database.work = Work::Due;
    }

    /// Returns the task that is due for a database, if any, so that the thread that ended the database's lease or
    /// finished its last task can continue with it. Removals are left to the workers, because they take a long time.
    pub(crate) fn take_due(&mut self, id: DatabaseId) -> Option<Task> {
        let is_due =
            |database: &Database| database.work == Work::Due && database.state != DatabaseState::Retiring;
        self.databases.get(id).is_some_and(is_due).then(|| self.start_due(id)).flatten()
    }

    /// Starts and returns the task that is due for a database, if any.
    pub(super) fn start_due(&mut self, id: DatabaseId) -> Option<Task> {
        let database = self.databases.get_mut(id)?;
        let kind = match &database.state {
            DatabaseState::Changing(Change::Unnaming { .. }) => TaskKind::Unname,
            DatabaseState::Changing(Change::Keeping { to, .. }) => TaskKind::Keep { to: to.clone() },
            DatabaseState::Resetting(Then::Ready) => TaskKind::Reset { in_place: false },
            DatabaseState::Retiring => TaskKind::Drop,
            _ => return None,
        };
        database.work = Work::Running;
        Some(Task { database: id, kind })
    }

    fn due(&mut self, now: Instant, of: impl Fn(&DatabaseState) -> bool) -> Option<Task> {
        let is_due = |database: &Database| match database.work {
            Work::Due => of(&database.state),
            Work::RetryAt(time) => time <= now && of(&database.state),
            Work::None | Work::Running => false,
        };
        let due = || self.databases.busy().filter(|(_, database)| is_due(database)).map(|(id, _)| id);
        // Take the databases in turn, ordered by id; otherwise, those with low ids could become due again and again and
        // starve the others.
        let id = due().find(|id| *id > self.last_due).or_else(|| due().next())?;
        self.last_due = id;
        self.start_due(id)
    }

    /// Returns the earliest time when a lease ends, a retry is due, or a request may time out.
    fn next_time(&mut self) -> Option<Instant> {
        let end = self.databases.next_end().map(|(end, _)| end);
        let retry = |(_, database): (DatabaseId, &Database)| match database.work {
            Work::RetryAt(time) => Some(time),
            _ => None,
        };
        let retries = self.databases.busy().filter_map(retry);
        retries.chain(self.look_at_lines_at).chain(end).min()
    }

    /// Handles requests that have timed out, unless it is too early for any.
    pub(super) fn tick(&mut self, now: Instant) {
        if self.look_at_lines_at.is_none_or(|time| time > now) {
            return;
        }
        let names = &self.names;
        self.asked.retain(|name| names.get(name).is_some_and(|line| !line.requests.is_empty()));
        let is_late = |name: &&String| {
            let line = self.names.get(*name);
            line.and_then(|line| self.times_out_at(line)).is_some_and(|time| time <= now)
        };
        let waited_for: Vec<_> = self.asked.iter().filter(is_late).cloned().collect();
        for name in waited_for {
            self.advance(&name, now);
        }
        let ends = self.asked.iter().filter_map(|name| self.times_out_at(self.names.get(name)?));
        // At the next attempt to create a database, the clients that wait for it may first need room.
        let attempts = self.supplies.values().filter_map(|supply| supply.next_attempt(now));
        self.look_at_lines_at = ends.chain(attempts).min();
        self.serve_where_full(now);
    }

    /// Makes sure that requests are checked for timeouts by this time.
    pub(super) fn look_at_lines(&mut self, at: Instant) {
        self.look_at_lines_at = Some(self.look_at_lines_at.map_or(at, |before| before.min(at)));
    }

    fn count_out(&mut self, id: DatabaseId, leaving: bool) {
        let Some(lease) = self.databases.get_mut(id).and_then(Database::lease_mut) else { return };
        let count = if leaving { &mut lease.leaving } else { &mut lease.open };
        *count = count.saturating_sub(1);
    }

    /// Records that a client has disconnected while its backend is still running.
    pub(super) fn leaving(&mut self, id: DatabaseId, now: Instant) {
        let Some(database) = self.databases.get_mut(id) else { return };
        if let Some(lease) = database.lease_mut() {
            lease.open = lease.open.saturating_sub(1);
            lease.leaving += 1;
            if lease.open == 0 {
                lease.moved = now;
            }
        }
        self.advance_name_of(id, now);
    }

    pub(super) fn disconnected(&mut self, id: DatabaseId, leaving: bool, now: Instant) {
        self.count_out(id, leaving);
        let Some(lease) = self.databases.get_mut(id).and_then(Database::lease_mut) else { return };
        lease.begin_to_end(now);
        if self.is_at_its_end(id, now) {
            self.end_lease(id, false);
        }
        self.advance_name_of(id, now);
    }

    /// Ends a lease whose database is gone or unusable.
    pub(super) fn lost(&mut self, id: DatabaseId, leaving: bool, now: Instant) {
        self.count_out(id, leaving);
        let Some(database) = self.databases.get(id) else { return };
        let DatabaseState::Leased(lease) = &database.state else {
            return self.advance_name_of(id, now);
        };
        let retire = lease.closing == Closes::Running;
        let head = database.name.as_ref().and_then(|name| self.names.get_mut(name)?.requests.front_mut());
        // The first request in the queue may be the one that terminated the sessions. Mark it as begun, so that it is
        // answered once the name has lost its database or received another.
        let (mut is_reset, mut is_released) = (false, false);
        if let Some(head) = head {
            is_reset = matches!(head.want, Want::Reset { .. });
            is_released = matches!(head.want, Want::Release);
            head.begun |= is_reset || is_released;
        }
        let stays = is_reset || lease.terms.retained && !is_released;
        let again = stays.then(|| lease.terms.clone());
        self.unname(id, retire, again);
    }

    /// Records that a task has signaled all of a database's sessions to terminate.
    pub(super) fn closed(&mut self, id: DatabaseId, now: Instant) {
        let Some(lease) = self.databases.get_mut(id).and_then(Database::lease_mut) else { return };
        if lease.closing == Closes::Running {
            lease.closing = Closes::Done;
        }
        self.advance_name_of(id, now);
    }

    /// Serves the requests waiting for this database's name.
    pub(super) fn advance_name_of(&mut self, id: DatabaseId, now: Instant) {
        if let Some(name) = self.databases.get(id).and_then(|database| database.name.clone()) {
            self.advance(&name, now);
        }
    }

    /// Closes the sessions waiting in rolled-back databases for the next lease. Since these databases still have a
    /// client's name, a client may want to drop one.
    pub(super) fn vacate(&mut self) {
        let has_session = |(_, database): &(DatabaseId, &Database)| database.isolation == Isolation::Rollback;
        let idle: Vec<_> = self.databases.ready().filter(has_session).map(|(id, _)| id).collect();
        for id in idle {
            self.unname(id, false, None);
        }
    }

    pub(super) fn close(&mut self, why: Closing) {
        self.closed = self.closed.or(Some(why));
        for line in self.names.values_mut() {
            for request in line.requests.drain(..) {
                self.actions.push(refused(request.ticket, why.error()));
            }
        }
        self.names.retain(|_, line| matches!(line.state, NameState::Held(_) | NameState::Reserved(_)));
    }
}
