//! Decides which name gets which database. The rest of the crate only has to carry out these decisions.
//!
//! The lease table stores the state of every database and every name. The table
//! doesn't do any I/O, read a clock or start threads, so a simulation can test it.
//!
//! [`LeaseTable::handle`] takes an [`Event`] and the current time and returns [`Action`]s: answers to requests and
//! tasks for the caller to run. [`LeaseTable::next_task`] hands out background work. Each task's outcome is reported
//! back as an event.
//!
//! ```text
//! Creating            ─▶ Ready                a task has made the copy
//!                     ─▶ Retiring             the task has failed
//!                     ─▶ gone                 the task stops so that a different task can run first
//! Ready               ─▶ Changing(Naming)     a lease receives the database
//!                     ─▶ Changing(Unnaming)   no lease needs the database, or a client needs its room
//! Changing(Naming)    ─▶ Leased               the database has the name
//!                     ─▶ Ready                SQL has given the name to a different database
//!                     ─▶ Changing(Unnaming)   the task has failed, or the database is stale
//! Leased              ─▶ Changing(Keeping), Changing(Copying) or Changing(Server), and back
//!                     ─▶ Resetting            a request resets the database, or a lease in rollback isolation ends
//!                     ─▶ Changing(Unnaming)   the lease ends, or exchanges the database for a fresh one
//! Resetting           ─▶ Leased               the database is fresh and its lease continues
//!                     ─▶ Ready                the database is fresh and has no lease
//!                     ─▶ Changing(Unnaming)   the database is in doubt, or its session is spent
//! Changing(Unnaming)  ─▶ Resetting            a lease may need the database
//!                     ─▶ Retiring             no lease may have the database again
//!                     ─▶ gone                 SQL has dropped or renamed the database
//! Changing(Keeping)   ─▶ gone                 SQL has dropped or renamed the database
//! Retiring            ─▶ gone                 the database is dropped
//! ```
//!
//! The table forgets a lease only when the lease's database has lost the lease's name. A database becomes ready
//! only with a [`Proof`]. If the task for `Unnaming`, `Keeping` or `Retiring` fails, the table tries it again. The
//! module `retries` bounds how long requests wait for that.

mod database;
mod databases;
mod failures;
#[cfg(test)]
mod fairness;
mod line;
pub(crate) mod linger;
mod lookup;
mod outcome;
mod retries;
mod room;
#[cfg(test)]
mod simulation;
mod stock;
pub(crate) mod supply;
#[cfg(test)]
mod tests;
pub(crate) mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use databases::Databases;
use line::Line;
use linger::LingerWatch;
use supply::Supply;

use crate::error::LeaseError;
use crate::isolation::Isolation;
use crate::names::NameRules;

/// Delay before the first retry of a failed task, doubled for each further retry up to [`LONGEST_RETRY`].
const RETRY: Duration = Duration::from_millis(200);
const LONGEST_RETRY: Duration = Duration::from_secs(5);

/// Identifies a database in the table. Ids are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct DatabaseId(pub(crate) u64);

/// Identifies a request, so that the answer reaches the right thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket(pub(crate) u64);

/// Identifies a set of startup parameters. Sessions with equal parameters are interchangeable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ParamsId(pub(crate) u64);

/// Proof that a database equals its template. Code may create a proof only after copying, resetting or comparing the
/// database.
#[derive(Debug)]
pub(crate) struct Proof(());

impl Proof {
    /// Creates a proof. Call this only where the code has just shown that the database is fresh.
    pub(crate) fn new() -> Self {
        Self(())
    }
}

/// The origin of a database.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Source {
    /// A copy of the template with this name.
    Template(String),
    /// A leased server started from the template with this name.
    Server(String),
}

/// A client's request, concerning one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Want {
    /// Open a session.
    Session {
        params: ParamsId,
        /// Terms for a new lease, if the name has none yet.
        terms: Terms,
        /// Marks the terms that the client requested explicitly. All other terms are defaults.
        explicit: Explicit,
        /// Whether to reset the database first.
        reset: bool,
    },
    /// Begin a lease without a session.
    Lease { params: Option<ParamsId>, terms: Terms },
    /// Reset the database, which retains its name.
    Reset { close: bool },
    /// End the lease.
    Release,
    /// Rename the database to `to` and keep it with its current contents.
    Keep { to: String },
    /// Make a template from the database's current state.
    Copy { to: String, close: bool },
    /// Restart, stop or crash the lease's own server.
    Server,
}

/// Marks the terms that a session requested explicitly. If the name already has a lease with different ones, the
/// session is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Explicit {
    pub(crate) isolation: bool,
    pub(crate) template: bool,
}

/// The terms of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) template: String,
    pub(crate) isolation: Isolation,
    /// How long the lease outlives its last session.
    pub(crate) linger: Duration,
    /// Whether the lease lasts until a client releases it.
    pub(crate) retained: bool,
}

impl Want {
    /// Returns the parameters of the requested session, or of the first session expected by a lease.
    fn params(&self) -> Option<ParamsId> {
        match self {
            Self::Session { params, .. } => Some(*params),
            Self::Lease { params, .. } => *params,
            _ => None,
        }
    }
}

impl Terms {
    fn source(&self) -> Source {
        match self.isolation {
            Isolation::Server => Source::Server(self.template.clone()),
            Isolation::Clone | Isolation::Rollback => Source::Template(self.template.clone()),
        }
    }
}

/// An external event that the table has to react to.
#[derive(Debug)]
pub(crate) enum Event {
    /// A client sent a request about a name.
    Request { ticket: Ticket, name: String, want: Want },
    /// A session's client has disconnected, but its backend is still running.
    Leaving { database: DatabaseId },
    /// A session has ended. `leaving` is true if the table already received `Leaving` for this session.
    Disconnected { database: DatabaseId, leaving: bool },
    /// A session ended because its database is gone or its transaction is broken, which also ends the lease.
    Lost { database: DatabaseId, leaving: bool },
    /// A task has finished, successfully or not.
    Finished { database: DatabaseId, outcome: Outcome },
    /// The [`TaskKind::Close`] task has signaled a database's sessions to terminate.
    Closed { database: DatabaseId },
    /// A ready database now has idle backends with these startup parameters.
    Warmed { database: DatabaseId, params: Vec<ParamsId> },
    /// A client is about to drop a database with SQL. The server refuses this while the database has
    /// sessions, so pgfresh must close idle sessions in all databases that have a client's name.
    Vacate,
    /// Time has passed, so some requests may have timed out.
    Tick,
    /// The table must stop handing out databases.
    Close(Closing),
}

/// Why the table stops handing out databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closing {
    ShuttingDown,
    ServerGone,
    /// A panic left the table in an unknown state, so pgfresh has replaced it with an empty one that refuses all
    /// requests.
    Failed,
}

impl Closing {
    fn error(self) -> LeaseError {
        match self {
            Self::ShuttingDown => LeaseError::Closed,
            Self::ServerGone => LeaseError::Gone,
            Self::Failed => LeaseError::Failed,
        }
    }
}

/// How a task finished.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The task succeeded, and its database equals the template.
    Fresh(Proof),
    /// The task has succeeded.
    Done,
    /// SQL gave the name to another database.
    NameTaken,
    /// The database has received the name, but no client may use it. Since becoming ready, the database or its session
    /// has become stale because of a crash, a change, or new settings.
    Stale,
    /// The database equals its template, but the next lease in rollback isolation can't reuse its session.
    SessionSpent,
    /// The database no longer belongs to pgfresh, because SQL dropped or renamed it or because the leases are closed.
    /// The table forgets it.
    DroppedOrRenamed,
    /// The task stopped to let other tasks go first, without leaving anything behind.
    PutOff,
    /// The database may differ from its template, for the given reason.
    Doubt(&'static str),
    /// The task failed.
    Failed(LeaseError),
}

/// An action for the caller to take after an event.
#[derive(Debug)]
pub(crate) enum Action {
    /// Pass this answer to the thread waiting for it.
    Answer { ticket: Ticket, answer: Answer },
    /// Run a task immediately, preferably in the waiting client's thread.
    Run { task: Task, ticket: Ticket },
}

/// The table's answer to a request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The client may open a session in this database. The table already counts the session.
    Session(DatabaseId),
    /// The request succeeded. In the case of [`Want::Server`], the caller may now change the lease's server.
    Done(Option<DatabaseId>),
    /// The name belongs to a database created by SQL, where the client gets its session.
    Elsewhere,
    /// The request failed.
    Refused(LeaseError),
}

/// A piece of work on one database. A database has at most one task at a time, not counting [`TaskKind::Close`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) database: DatabaseId,
    pub(crate) kind: TaskKind,
}

/// The work that a task has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TaskKind {
    /// Create the database.
    Create(Source),
    /// Rename the database to a lease's name. `isolation` is the lease's, and `params` are the startup parameters of
    /// its first session.
    Name { to: String, isolation: Isolation, params: Option<ParamsId> },
    /// Rename the database to one of pgfresh's own names, which frees the lease's name.
    Unname,
    /// Reset the database.
    Reset { in_place: bool },
    /// Rename the database to `to` without changing its contents.
    Keep { to: String },
    /// Make a template called `to` from the database.
    Copy { to: String },
    /// Signal all sessions in the database to terminate. The task doesn't wait for them, because each session reports
    /// its own end. Unlike others, this task may run alongside another, and it finishes with [`Event::Closed`].
    Close,
    /// Drop the database.
    Drop,
}

/// The state of all databases and names.
#[derive(Debug, Default)]
pub(crate) struct LeaseTable {
    databases: Databases,
    names: BTreeMap<String, Line>,
    /// Names with waiting requests. Names whose requests have all been answered remain in the set until the next check
    /// for timeouts.
    asked: BTreeSet<String>,
    /// When to check these names for requests that have timed out.
    look_at_lines_at: Option<Instant>,
    supplies: BTreeMap<Source, Supply>,
    /// Names whose leases always last until released by a client.
    pub(crate) retained: BTreeSet<String>,
    /// Recognizes names that pgfresh generated for a lease. Only [`Want::Lease`]
    /// can begin a lease with a generated name; a session can only join it.
    pub(crate) is_issued: Option<fn(&str) -> bool>,
    /// Rules for the names of databases created by sessions.
    pub(crate) rules: NameRules,
    /// Whether a lease that asks for a reset may receive another database, while its own is reset in the background.
    pub(crate) exchanges: bool,
    /// Maximum number of databases in the server.
    pub(crate) capacity: usize,
    last_id: u64,
    /// The database whose task was started last. The next search for a task begins after this database.
    last_due: DatabaseId,
    /// Databases removed from the table since the last call to `take_gone`.
    gone: Vec<DatabaseId>,
    /// Until this time, the table creates fewer databases ahead of demand.
    quiet_until: Option<Instant>,
    /// When a client last received a database.
    assigned_at: Option<Instant>,
    /// Whether a client has found no ready database since the last call to `take_shortage`.
    is_short: bool,
    closed: Option<Closing>,
    /// How this run's names used their databases after their last sessions.
    pub(crate) linger_watch: LingerWatch,
    /// How many databases pgfresh couldn't recycle, by reason.
    pub(crate) dropped: BTreeMap<&'static str, u64>,
    pub(crate) failures: u64,
    actions: Actions,
}

/// Collects the actions for the event being handled.
#[derive(Debug, Default)]
struct Actions {
    list: Vec<Action>,
    /// The number of actions after which the table should panic, for tests. Release builds don't have this field.
    #[cfg(debug_assertions)]
    until_panic: Option<usize>,
}

impl Actions {
    fn push(&mut self, action: Action) {
        #[cfg(debug_assertions)]
        if let Some(left) = &mut self.until_panic {
            assert!(*left > 0, "a test has planted this panic");
            *left -= 1;
        }
        self.list.push(action);
    }

    fn take(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.list)
    }
}

impl LeaseTable {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, ..Self::default() }
    }

    /// Returns an empty table that refuses every request.
    pub(crate) fn refusing(why: Closing) -> Self {
        Self { closed: Some(why), ..Self::default() }
    }

    /// Makes the table panic after this many actions, for tests.
    #[cfg(debug_assertions)]
    pub(crate) fn plant_panic(&mut self, actions: usize) {
        self.actions.until_panic = Some(actions);
    }

    /// Returns the databases removed since the last call, whose resources the caller must free.
    pub(crate) fn take_gone(&mut self) -> Vec<DatabaseId> {
        std::mem::take(&mut self.gone)
    }

    /// Handles an event and returns the resulting actions.
    pub(crate) fn handle(&mut self, event: Event, now: Instant) -> Vec<Action> {
        self.databases.sort();
        match event {
            Event::Request { ticket, name, want } => self.request(ticket, &name, want, now),
            Event::Leaving { database } => self.leaving(database, now),
            Event::Disconnected { database, leaving } => {
                self.disconnected(database, leaving, now);
                // A client may be waiting for room. If no other database can make room, end a lingering lease early.
                self.serve_where_full(now);
            }
            Event::Lost { database, leaving } => self.lost(database, leaving, now),
            Event::Finished { database, outcome } => {
                self.finished(database, outcome, now);
                self.serve_all(now);
            }
            Event::Closed { database } => self.closed(database, now),
            Event::Warmed { database, params } => {
                if let Some(database) = self.databases.get_mut(database) {
                    database.warm = params;
                }
            }
            Event::Vacate => self.vacate(),
            Event::Tick => self.tick(now),
            Event::Close(why) => self.close(why),
        }
        self.actions.take()
    }
}
