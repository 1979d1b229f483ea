//! Passes clients' requests to the table, runs the tasks that
//! the table requests, and wakes the clients with the answers.
//!
//! A client's thread usually runs the tasks for its request itself, because waking another thread would take as long as
//! most tasks do.

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

/// How often a thread waiting for an answer makes the table check its timeouts.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The resources needed to begin a client's session in a leased database.
#[derive(Debug)]
pub(crate) enum Admission {
    Clone(Visit),
    Rollback(Box<TransactionSession>),
    Server(SharedServer),
}

/// Facts about a database that a new session needs.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(crate) address: DatabaseAddress,
    /// The stamp of the database's catalogs, if just read for this session. `None` if an earlier session has already
    /// used the stamp.
    pub(crate) stamp: Option<CatalogStamp>,
    pub(crate) files: KnownFiles,
    pub(crate) crash_effect: CrashEffect,
    /// Whether this is the first session since the database received its lease's name or was reset.
    pub(crate) is_first: bool,
}

impl Inner {
    /// Sends a request about a name to the table and waits for the answer, running the request's tasks in the meantime.
    /// The table limits how long a request can wait.
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
            // Maintenance workers check timeouts too, but they may all be waiting for the server right now.
            tasks = self.raise(Event::Tick, Some(ticket));
        }
    }

    /// Runs a task in the background, along with all following tasks for the database, because waking another thread
    /// would take as long as most tasks do.
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

    /// Runs a task and returns the event that tells the table how the task finished. Even a panic becomes an event;
    /// otherwise, all requests for the database would wait forever.
    fn perform(&self, Task { database, kind }: Task) -> Event {
        if kind == TaskKind::Close {
            // If this fails, some sessions remain open, and requests waiting for them give up after their timeout.
            drop(unless_panicked(|| self.close_sessions(database)));
            return Event::Closed { database };
        }
        let outcome = unless_panicked(|| self.execute(database, &kind));
        // If reading the log stopped halfway, pgfresh can no longer tell which databases are fresh.
        if outcome.is_err() && self.evidence.is_half_read() {
            self.lock().fail();
        }
        Event::Finished { database, outcome: outcome.unwrap_or_else(Outcome::Failed) }
    }

    /// Passes an event to the table and wakes other threads for the resulting actions. Returns only the tasks of the
    /// request `mine`, which the caller has to run itself.
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
    /// Passes a new request to the table. Returns the slot where the answer will arrive, the request's ticket, and the
    /// tasks for the calling thread to run.
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

    /// Notifies the table of clients that have disconnected while their sessions are still open.
    /// Stops at the first client that is still connected, because the lease then continues
    /// anyway, and checking hundreds of clients for every request would take too long.
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

    /// Returns what a client needs to begin its session in a leased database, or `None` if the lease has ended in the
    /// meantime. The table has already counted the session.
    pub(crate) fn admit(&mut self, id: DatabaseId) -> Option<Admission> {
        match self.pool.get_mut(id)? {
            Resources::Clone(copy) => {
                let address = copy.identity.address.clone();
                let (files, crash_effect) = (copy.known_files(), copy.crash_effect());
                let Phase::Leased { stamp, is_current, entered, .. } = &mut copy.phase else { return None };
                let stamp = std::mem::take(is_current).then(|| Arc::clone(stamp));
                Some(Admission::Clone(Visit { address, stamp, files, crash_effect, is_first: !*entered }))
            }
            Resources::Rollback(rollback) => Some(Admission::Rollback(rollback.session.take()?)),
            Resources::Server(server) => Some(Admission::Server(Arc::clone(server))),
            Resources::Preparing(_) | Resources::Retired(_) | Resources::Gone => None,
        }
    }

    /// Removes a session from its lease. Returns true if the table already knows that the client has disconnected, or
    /// `None` if the lease ended before the session did.
    pub(crate) fn count_out(&mut self, id: DatabaseId, client: &Arc<Client>) -> Option<bool> {
        let clients = self.pool.clients_mut(id)?;
        let at = clients.iter().position(|other| Arc::ptr_eq(other, client))?;
        clients.swap_remove(at);
        // Learn now, because the lease may linger long after its last session while others begin.
        if clients.is_empty() {
            let expected = self.expected.ids();
            if let Some(copy) = self.pool.copy_mut(id) {
                copy.learn(&expected);
            }
        }
        Some(client.is_leaving())
    }

    /// Passes an event to the table. Returns only the tasks of the request `mine` and leaves the others to the
    /// maintenance workers.
    pub(crate) fn handle(&mut self, event: Event, mine: Option<Ticket>) -> Vec<Task> {
        let actions = self.table.handle(event, Instant::now());
        for id in self.table.take_gone() {
            drop(self.pool.remove(id));
        }
        self.act_on(actions, mine)
    }

    /// Passes an event to the table and leaves all resulting tasks to the maintenance workers.
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
                    // Every client waits for its answer, so the table never counts a session without a client.
                    let Some(slot) = self.slots.remove(&ticket) else { continue };
                    // Register the client now, so that it is notified even if the lease ends before the client's own
                    // thread continues.
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
    // All data shared with other threads is behind locks, which reject data left half changed by a panic.
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
