//! Requests to the table: passes them to the table, runs its tasks, and wakes the clients with their answers.
//!
//! A request usually runs its tasks in its own thread. Waking another thread would take as long as most tasks.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sys::lock;

use crate::address::DatabaseAddress;
use crate::backends::backend::CatalogStamp;
use crate::backends::client::Client;
use crate::error::LeaseError;
use crate::reset::rollback::TransactionSession;
use crate::runtime::checkout::Access;
use crate::runtime::core::{Core, Newcomer, Slot};
use crate::runtime::inner::Inner;
use crate::runtime::leased_server::ServerAction;
use crate::runtime::resources::{CrashEffect, KnownFiles, Phase, Resources, SharedServer};
use crate::table::{Action, Answer, DatabaseId, Event, Outcome, Task, TaskKind, Ticket, Want};

/// Interval at which a waiting thread asks the table to check its timeouts.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The resources for a session in a leased database.
#[derive(Debug)]
pub(crate) enum Admission {
    Clone(Visit),
    Rollback(Box<TransactionSession>),
    Server(SharedServer),
}

/// Facts about a database for a session in it.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(crate) address: DatabaseAddress,
    /// The stamp, if pgfresh has read it for this very session.
    pub(crate) stamp: Option<CatalogStamp>,
    pub(crate) files: KnownFiles,
    pub(crate) crash_effect: CrashEffect,
    /// Whether no session has started yet since the database received its lease's name, or since its last reset.
    pub(crate) is_first: bool,
}

impl Inner {
    /// Sends a request concerning a name, and waits for the answer. The table limits the wait. Runs the request's own tasks in this
    /// thread.
    pub(crate) fn ask(
        &self,
        name: &str,
        want: Want,
        newcomer: Option<Newcomer>,
    ) -> Result<Answer, LeaseError> {
        let answer = unless_panicked(|| self.ask_table(name, want, newcomer));
        answer.unwrap_or_else(|panicked| {
            Err(if self.lock().has_failed { LeaseError::Failed } else { panicked })
        })
    }

    fn ask_table(&self, name: &str, want: Want, newcomer: Option<Newcomer>) -> Result<Answer, LeaseError> {
        let mut core = self.lock();
        let (slot, ticket, mut tasks) = core.request(name, want, newcomer);
        self.wake_worker(core);
        loop {
            while let Some(task) = tasks.pop() {
                tasks.extend(self.raise(self.perform(task), Some(ticket)));
            }
            if let Some(answer) = slot.wait(LOOK_AGAIN) {
                return answer;
            }
            // Maintenance workers do this too, but all of them may be waiting for the server.
            tasks = self.raise(Event::Tick, Some(ticket));
        }
    }

    /// Runs a task that no thread waits for, and then the next tasks of the same database. Waking another thread for these would
    /// take as long as most tasks.
    pub(crate) fn run(&self, task: Task) {
        let database = task.database;
        let mut next = Some(task);
        while let Some(task) = next {
            let event = self.perform(task);
            let mut core = self.lock();
            core.raise_in_background(event);
            next = core.next_in(database);
            self.wake_worker(core);
        }
    }

    /// Executes a task, and returns the event for the table. Returns an event even after a panic, because all requests for the
    /// database wait for it.
    fn perform(&self, Task { database, kind }: Task) -> Event {
        if kind == TaskKind::Close {
            // If this fails, some sessions stay open. The requests that wait for their end have a timeout.
            drop(unless_panicked(|| self.close_sessions(database)));
            return Event::Closed { database };
        }
        let outcome = unless_panicked(|| self.execute(database, &kind));
        // Without the log, pgfresh cannot know which databases are fresh.
        if outcome.is_err() && self.evidence.is_half_read() {
            self.lock().fail();
        }
        Event::Finished { database, outcome: outcome.unwrap_or_else(Outcome::Failed) }
    }

    /// Passes an event to the table, and wakes other threads for the resulting actions. Returns the tasks that belong to the ticket
    /// `mine`.
    pub(crate) fn raise(&self, event: Event, mine: Option<Ticket>) -> Vec<Task> {
        let mut core = self.lock();
        let tasks = core.handle(event, mine);
        self.wake_worker(core);
        tasks
    }

    pub(crate) fn act(&self, id: DatabaseId, action: ServerAction) -> Result<(), LeaseError> {
        let result = unless_panicked(|| match (&self.options.provisioner, self.core.check_out(id)) {
            (Some(provisioner), Some(Access::Server(server))) => lock(&server).act(provisioner, action),
            _ => Err(LeaseError::NoServers),
        });
        self.raise(Event::Finished { database: id, outcome: Outcome::Done }, None);
        result?
    }
}

impl Core {
    /// Begins a request. Returns the slot for its answer, its ticket, and the tasks for its thread.
    pub(crate) fn request(
        &mut self,
        name: &str,
        want: Want,
        newcomer: Option<Newcomer>,
    ) -> (Arc<Slot>, Ticket, Vec<Task>) {
        self.notice_gone_clients(name);
        self.last_ticket += 1;
        let slot = Arc::new(Slot::new(newcomer));
        let ticket = Ticket(self.last_ticket);
        self.slots.insert(ticket, Arc::clone(&slot));
        let tasks = self.handle(Event::Request { ticket, name: name.to_owned(), want }, Some(ticket));
        (slot, ticket, tasks)
    }

    /// Reports clients to the table that have disconnected while their sessions have not ended yet. If any client is still
    /// connected, the lease goes on anyway. So the method stops there, instead of checking hundreds of clients each time that a
    /// client comes.
    fn notice_gone_clients(&mut self, name: &str) {
        let Some(id) = self.table.database_named(name) else { return };
        let clients = self.pool.clients(id);
        if clients.iter().any(|client| client.is_present()) {
            return;
        }
        let count = clients.iter().filter(|client| client.leave()).count();
        for _ in 0..count {
            self.raise_in_background(Event::Leaving { database: id });
        }
    }

    /// Returns the resources for a session in a leased database. The table already counts the session. Returns `None` if the lease
    /// has ended in the meantime.
    pub(crate) fn admit(&mut self, id: DatabaseId) -> Option<Admission> {
        match self.pool.get_mut(id)? {
            Resources::Clone(copy) => {
                let address = copy.identity.address.clone();
                let (files, crash_effect) = (copy.known_files(), copy.crash_effect());
                let Phase::Leased { stamp, is_current, entered } = &mut copy.phase else { return None };
                let stamp = std::mem::take(is_current).then(|| Arc::clone(stamp));
                Some(Admission::Clone(Visit { address, stamp, files, crash_effect, is_first: !*entered }))
            }
            Resources::Rollback(rollback) => Some(Admission::Rollback(rollback.session.take()?)),
            Resources::Server(server) => Some(Admission::Server(Arc::clone(server))),
            Resources::Preparing(_) | Resources::Retired(_) | Resources::Gone => None,
        }
    }

    /// Removes a session from its lease. Returns whether its client was leaving. Returns `None` if the lease has already ended
    /// without the session.
    pub(crate) fn count_out(&mut self, id: DatabaseId, client: &Arc<Client>) -> Option<bool> {
        let clients = self.pool.clients_mut(id)?;
        let at = clients.iter().position(|other| Arc::ptr_eq(other, client))?;
        clients.swap_remove(at);
        Some(client.is_leaving())
    }

    /// Passes an event to the table. Returns the tasks that belong to the ticket `mine`.
    pub(crate) fn handle(&mut self, event: Event, mine: Option<Ticket>) -> Vec<Task> {
        let actions = self.table.handle(event, Instant::now());
        for id in self.table.take_gone() {
            drop(self.pool.remove(id));
        }
        self.act_on(actions, mine)
    }

    /// Passes an event to the table when no thread waits that could run its tasks.
    pub(crate) fn raise_in_background(&mut self, event: Event) {
        self.handle(event, None);
    }

    pub(crate) fn act_on(&mut self, actions: Vec<Action>, mine: Option<Ticket>) -> Vec<Task> {
        let mut tasks = Vec::new();
        for action in actions {
            match action {
                Action::Run { task, ticket } if Some(ticket) == mine => tasks.push(task),
                Action::Run { task, .. } => self.urgent.push_back(task),
                Action::Answer { ticket, answer } => {
                    // Every client waits until it has its answer, so each session counted here has a client.
                    let Some(slot) = self.slots.remove(&ticket) else { continue };
                    // This client must learn if its session ends, even before its own thread continues.
                    if let (Answer::Session(id), Some(client)) = (&answer, slot.client())
                        && let Some(clients) = self.pool.clients_mut(*id)
                    {
                        clients.push(Arc::clone(client));
                    }
                    slot.answer(answer);
                }
            }
        }
        tasks
    }
}

/// Runs `work` and returns its result, or an error if it panics.
fn unless_panicked<T>(work: impl FnOnce() -> T) -> Result<T, LeaseError> {
    // All data that `work` shares with other threads are behind locks, which refuse data that a panic has left half changed.
    panic::catch_unwind(AssertUnwindSafe(work)).map_err(|_| {
        tracing::error!("a task has panicked");
        LeaseError::Panicked
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_panics_has_failed() {
        assert!(matches!(unless_panicked(|| 1), Ok(1)));
        let outcome = unless_panicked(|| -> Outcome { panic!("as the test wants it") });
        assert!(matches!(outcome, Err(LeaseError::Panicked)));
    }
}
