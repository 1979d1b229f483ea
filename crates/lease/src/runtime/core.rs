//! Holds the state of all leases behind one lock: the table, the resources of its databases, and the slots for answers.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use pgwire::StartupParams;
use sys::{lock, sound};

use crate::backends::backend::params_id;
use crate::backends::client::Client;
use crate::backends::expected::ExpectedParams;
use crate::error::LeaseError;
use crate::names::preparing;
use crate::reset::digest::Difference;
use crate::runtime::pool::Pool;
use crate::runtime::resources::{Resources, RollbackCopy};
use crate::table::{Answer, Closing, DatabaseId, LeaseTable, ParamsId, Task, Ticket};

/// Maximum number of idle backends left behind by departed clients in databases that are still leased.
const MOST_WAITING: usize = 64;
/// How often pgfresh reads the log while any name is in use, to keep up with the server, which recycles old segments.
const CATCH_UP: Duration = Duration::from_secs(1);
/// If the server had no room for a client's session, pgfresh retains no idle backends for this long afterwards.
const CROWDED: Duration = Duration::from_secs(10);

/// The data behind the lock.
#[derive(Debug, Default)]
pub(crate) struct Core {
    pub(crate) table: LeaseTable,
    /// Tasks for the maintenance workers that should run before all others. Most have a waiting client whose own thread
    /// is busy.
    pub(crate) urgent: VecDeque<Task>,
    pub(crate) slots: HashMap<Ticket, Arc<Slot>>,
    pub(crate) pool: Pool,
    pub(crate) expected: ExpectedParams,
    /// For each idle maintenance worker, the time when its timer wakes it.
    pub(crate) idle_workers: Vec<Instant>,
    /// When a maintenance worker last read the log. During long leases, no task would do so otherwise.
    pub(crate) caught_up: Option<Instant>,
    /// Number of resets before the last VACUUM of `pg_database`.
    vacuumed: u64,
    /// Maximum number of idle sessions: backends waiting for a client and pgfresh's own sessions waiting for the next
    /// reset.
    pub(crate) most_idle: usize,
    /// Until this time, pgfresh retains no idle backends.
    crowded: Option<Instant>,
    serial: u64,
    pub(crate) last_ticket: u64,
    pub(crate) closed: bool,
    /// True if a panic has left the table in an unknown state. In this case, a closed table has replaced it.
    pub(crate) has_failed: bool,
    /// Functions to call if a panic leaves the table in an unknown state.
    on_failure: Vec<OnFailure>,
    pub(crate) counters: Counters,
}

/// A function to call once if a panic leaves the table in an unknown state.
pub(crate) struct OnFailure(Box<dyn FnOnce() + Send>);

impl fmt::Debug for OnFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnFailure")
    }
}

impl Core {
    pub(crate) fn new(capacity: usize) -> Self {
        let (table, caught_up) = (LeaseTable::new(capacity), Some(Instant::now()));
        Self { table, caught_up, most_idle: usize::MAX, ..Self::default() }
    }

    pub(crate) fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Discards the table and all databases after a panic, which may have left them half changed. All waiting and
    /// future requests are refused, so that no client gets a database in an unknown state.
    pub(crate) fn fail(&mut self) {
        self.table = LeaseTable::refusing(Closing::Failed);
        self.urgent.clear();
        self.pool.fail();
        (self.closed, self.has_failed) = (true, true);
        for slot in std::mem::take(&mut self.slots).into_values() {
            slot.answer(Answer::Refused(LeaseError::Failed));
        }
        for OnFailure(call) in self.on_failure.drain(..) {
            call();
        }
    }

    /// Calls `call` once if a panic leaves the table in an unknown state, or immediately if this has already happened.
    pub(crate) fn when_failed(&mut self, call: impl FnOnce() + Send + 'static) {
        if self.has_failed {
            call();
        } else {
            self.on_failure.push(OnFailure(Box::new(call)));
        }
    }

    /// Generates a new name for a database in preparation.
    pub(crate) fn next_name(&mut self) -> String {
        preparing(self.next_serial())
    }

    /// Finds the startup parameters with this id among the waiting clients.
    pub(crate) fn params_of(&self, id: ParamsId) -> Option<StartupParams> {
        let mut waiting = self.slots.values().filter_map(|slot| slot.params());
        waiting.find(|params| params_id(params) == id).cloned()
    }

    /// Returns true if the server has room for idle backends.
    pub(crate) fn has_room(&self) -> bool {
        self.crowded.is_none_or(|until| until <= Instant::now())
    }

    /// Makes room for the backend of a client leaving its database. At the limit, this closes the idle backends of the
    /// lease that ends next. Returns false if the client's backend must be closed instead. No limit applies if the
    /// lease ends with this client, because the backend then waits in a ready database.
    pub(crate) fn make_room_for_left(&mut self, id: DatabaseId) -> bool {
        if !self.has_room() {
            return false;
        }
        if self.table.ends_with_its_session(id) {
            return true;
        }
        if self.pool.waiting_among(|id| self.table.is_leased(id)) < MOST_WAITING {
            return true;
        }
        let waiting = |id: &DatabaseId| {
            let copy = self.pool.get(*id).and_then(Resources::copy);
            copy.is_some_and(|copy| !copy.waiting.is_empty())
        };
        let ends = self.table.by_end().find(waiting);
        match ends.and_then(|id| self.pool.copy_mut(id)) {
            Some(copy) => {
                copy.waiting.clear();
                true
            }
            None => false,
        }
    }

    /// Closes idle sessions in all databases but `stays` until at most `most_idle` are left. Databases being removed
    /// come first, followed by leases with a deadline (earliest first). Ready databases come last, and very last the
    /// one for the next client.
    pub(crate) fn trim_idle(&mut self, stays: DatabaseId) {
        let mut idle = self.pool.idle();
        if idle <= self.most_idle {
            return;
        }
        for id in self.table.by_need().filter(|id| *id != stays) {
            if idle <= self.most_idle {
                return;
            }
            if let Some(resources) = self.pool.get_mut(id) {
                idle -= resources.idle();
                resources.close_waiting();
            }
        }
    }

    /// Closes all idle backends and retains no new ones for a while.
    pub(crate) fn evict_idle(&mut self) {
        self.crowded = Some(Instant::now() + CROWDED);
        self.pool.close_waiting();
        // These databases are ready, so no lease is using their sessions.
        for id in self.table.ready_databases() {
            if let Some(Resources::Rollback(RollbackCopy { session, .. })) = self.pool.get_mut(id) {
                *session = None;
            }
        }
    }

    pub(crate) fn close_waiting_in_leases(&mut self) {
        for lease in self.table.leases() {
            if let Some(resources) = lease.database.and_then(|id| self.pool.get_mut(id)) {
                resources.close_waiting();
            }
        }
    }

    /// Returns the most urgent task, or the time when one may be due.
    pub(crate) fn next_task(&mut self) -> Result<Task, Option<Instant>> {
        match self.urgent.pop_front() {
            Some(task) => Ok(task),
            None => self.table.next_task(Instant::now()),
        }
    }

    /// Returns the next task for this database: an urgent one, or else one that is due. If only other databases have
    /// urgent tasks, returns `None`, because those come first.
    pub(crate) fn next_in(&mut self, database: DatabaseId) -> Option<Task> {
        if self.urgent.is_empty() {
            return self.table.take_due(database);
        }
        let at = self.urgent.iter().position(|task| task.database == database)?;
        self.urgent.remove(at)
    }

    /// Returns the time when a maintenance worker should next read the log, or `None` while no name is in use.
    pub(crate) fn reads_log_at(&self) -> Option<Instant> {
        let next = || self.caught_up.map_or_else(Instant::now, |last| last + CATCH_UP);
        self.table.is_used().then(next)
    }

    /// Returns true if at least `resets` databases have been reset since this last returned true.
    pub(crate) fn take_vacuum_due(&mut self, resets: u64) -> bool {
        let is_due = self.counters.recycled.0 >= self.vacuumed + resets;
        if is_due {
            self.vacuumed = self.counters.recycled.0;
        }
        is_due
    }

    /// Returns true if an idle maintenance worker should wake and check the
    /// table now. Busy workers check the table anyway after their current task.
    pub(crate) fn needs_worker(&mut self) -> bool {
        let Some(wakes_at) = self.idle_workers.iter().min().copied() else { return false };
        if !self.urgent.is_empty() || self.expected.is_note_due() || self.pool.spares.is_lacking() {
            return true;
        }
        let now = Instant::now();
        match self.table.next_task(now) {
            Ok(task) => {
                self.urgent.push_back(task);
                true
            }
            Err(soonest) => soonest.into_iter().chain(self.reads_log_at()).any(|time| time < wakes_at),
        }
    }
}

/// A client requesting a session, with its startup parameters.
#[derive(Debug, Clone)]
pub(crate) struct Newcomer {
    pub(crate) client: Arc<Client>,
    pub(crate) params: StartupParams,
}

/// Holds the answer to a request until the waiting thread takes it.
#[derive(Debug)]
pub(crate) struct Slot {
    newcomer: Option<Newcomer>,
    reply: Mutex<Reply>,
    answered: Condvar,
}

#[derive(Debug, Default)]
struct Reply {
    answer: Option<Answer>,
    /// Whether a thread is sleeping until the answer arrives. Usually the requesting thread itself produces the answer,
    /// so this saves a system call that would wake no thread.
    is_awaited: bool,
}

impl Slot {
    /// Returns a slot for a request. Only a request for a session has a `newcomer`.
    pub(crate) fn new(newcomer: Option<Newcomer>) -> Self {
        Self { newcomer, reply: Mutex::default(), answered: Condvar::new() }
    }

    /// Returns the startup parameters, if the request is for a session.
    pub(crate) fn params(&self) -> Option<&StartupParams> {
        self.newcomer.as_ref().map(|newcomer| &newcomer.params)
    }

    /// Returns the client, if the request is for a session.
    pub(crate) fn client(&self) -> Option<&Arc<Client>> {
        self.newcomer.as_ref().map(|newcomer| &newcomer.client)
    }

    pub(crate) fn answer(&self, answer: Answer) {
        let mut reply = lock(&self.reply);
        reply.answer = Some(answer);
        if reply.is_awaited {
            self.answered.notify_all();
        }
    }

    /// Waits for the answer. Returns `None` if it doesn't arrive within `timeout`.
    pub(crate) fn wait(&self, timeout: Duration) -> Option<Result<Answer, LeaseError>> {
        let is_open = |reply: &mut Reply| {
            reply.is_awaited = reply.answer.is_none();
            reply.is_awaited
        };
        let waited = self.answered.wait_timeout_while(lock(&self.reply), timeout, is_open);
        match sound(waited).0.answer.take()? {
            Answer::Refused(error) => Some(Err(error)),
            answer => Some(Ok(answer)),
        }
    }
}

/// How long to wait before reporting another failure with the same cause.
const SAY_AGAIN: Duration = Duration::from_mins(1);

/// Counts of events since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) created: (u64, Duration),
    pub(crate) recycled: (u64, Duration),
    pub(crate) warm: u64,
    pub(crate) cold: u64,
    pub(crate) differences: Vec<Difference>,
    /// Number of failed background tasks, by purpose.
    pub(crate) errors: HashMap<&'static str, u64>,
    /// When pgfresh last reported a failure, by purpose and cause.
    said: HashMap<(&'static str, String), Instant>,
}

impl Counters {
    /// Returns true if pgfresh should report this failure now, because it hasn't reported this cause recently. Counts
    /// as a report.
    pub(crate) fn is_news(&mut self, verb: &'static str, why: &str) -> bool {
        self.said.retain(|_, last| last.elapsed() < SAY_AGAIN);
        let is_news = !self.said.contains_key(&(verb, why.to_owned()));
        if is_news {
            self.said.insert((verb, why.to_owned()), Instant::now());
        }
        is_news
    }
}

#[cfg(test)]
mod tests;
