//! The lease table decides which name gets which database, so that the rest of the crate only has to carry out its decisions.
//!
//! The table knows every database and every name, and each of them is in exactly one state. It has no I/O, no clock and no threads,
//! so that a simulation can test it.
//!
//! [`LeaseTable::handle`] takes an [`Event`] and the current time, and returns [`Action`]s: answers to requests, and tasks for the
//! caller to run. [`LeaseTable::next_task`] hands out background work. The outcome of a task comes back as an event.
//!
//! ```text
//! Creating            ─▶ Ready                a task has made the copy
//!                     ─▶ Retiring             the task has failed
//!                     ─▶ gone                 the task lets another one go first
//! Ready               ─▶ Changing(Naming)     a lease receives the database
//!                     ─▶ Changing(Unnaming)   no lease needs the database, or a client needs its room
//! Changing(Naming)    ─▶ Leased               the database has the name
//!                     ─▶ Ready                SQL has given the name to a different database
//!                     ─▶ Changing(Unnaming)   the task has failed, or the database is stale
//! Leased              ─▶ Changing(Keeping), Changing(Copying) or Changing(Server), and back
//!                     ─▶ Resetting            a request resets the database, or a lease in rollback isolation ends
//!                     ─▶ Changing(Unnaming)   the lease ends
//! Resetting           ─▶ Leased               the database is fresh, and its lease goes on
//!                     ─▶ Ready                the database is fresh, and has no lease
//!                     ─▶ Changing(Unnaming)   the database is in doubt, or its session is spent
//! Changing(Unnaming)  ─▶ Resetting            a lease may need the database
//!                     ─▶ Retiring             no lease may have the database again
//!                     ─▶ gone                 SQL has dropped or renamed the database
//! Changing(Keeping)   ─▶ gone                 SQL has dropped or renamed the database
//! Retiring            ─▶ gone                 the database is dropped
//! ```
//!
//! A lease leaves the table only when its database no longer has the name. A database becomes ready only with a [`Proof`]. A failed
//! `Unnaming`, `Keeping` or `Retiring` is tried again.

mod database;
mod databases;
#[cfg(test)]
mod fairness;
mod line;
mod lookup;
mod outcome;
#[cfg(test)]
mod simulation;
mod supply;
#[cfg(test)]
mod tests;
pub(crate) mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use databases::Databases;
use line::Line;
use supply::Supply;

use crate::error::LeaseError;
use crate::isolation::Isolation;
use crate::names::NameRules;

/// Pause before the first retry of a failed task. Each further pause is twice as long as the previous one, up to [`LONGEST_RETRY`].
const RETRY: Duration = Duration::from_millis(200);
const LONGEST_RETRY: Duration = Duration::from_secs(5);

/// Returns the pause before the next attempt. `failures` is the number of failures before the last one. Each of them doubles the
/// pause, up to `longest`.
fn pause_after(failures: u32, longest: Duration) -> Duration {
    (RETRY * 2_u32.saturating_pow(failures)).min(longest)
}

/// Identifies a database in the table. Ids are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct DatabaseId(pub(crate) u64);

/// Identifies a request, so that its answer reaches the thread that waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket(pub(crate) u64);

/// Identifies a set of startup parameters. Sessions with equal parameters are interchangeable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ParamsId(pub(crate) u64);

/// Proof that a database equals its template. Only code that has compared or copied the database creates one.
#[derive(Debug)]
pub(crate) struct Proof(());

impl Proof {
    /// Returns a proof. Only code that has shown that the database is fresh may call this.
    pub(crate) fn new() -> Self {
        Self(())
    }
}

/// The source of ready databases.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Source {
    /// A copy of the template with this name.
    Template(String),
    /// A leased server that starts from the template with this name.
    Server(String),
}

/// A client's request concerning a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Want {
    /// Open a session.
    Session {
        params: ParamsId,
        /// Terms of the lease, used if the name has no lease yet.
        terms: Terms,
        /// Terms that the client has requested explicitly, as opposed to defaults.
        explicit: Explicit,
        /// Whether to reset the database first.
        reset: bool,
    },
    /// Begin a lease without a session.
    Lease { params: Option<ParamsId>, terms: Terms },
    /// Reset the database. It keeps its name.
    Reset { close: bool },
    /// End the lease.
    Release,
    /// Rename the database to `to`, and keep its contents.
    Keep { to: String },
    /// Make a template that is a copy of the database in its current state.
    Copy { to: String, close: bool },
    /// Restart, stop or crash the lease's own server.
    Server,
}

/// Terms that a session has requested explicitly. An existing lease must have the same ones.
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
    /// Returns the parameters of the requested session, or those of the first session that a lease expects.
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

/// Something that has happened and that the table has to handle.
#[derive(Debug)]
pub(crate) enum Event {
    /// A client has sent a request concerning a name.
    Request { ticket: Ticket, name: String, want: Want },
    /// The client of an open session has disconnected, but its backend has not ended yet.
    Leaving { database: DatabaseId },
    /// A session has ended. `leaving` tells whether the table has already received `Leaving` for it.
    Disconnected { database: DatabaseId, leaving: bool },
    /// A session has ended because its database is gone or its transaction is broken. Its lease ends with it.
    Lost { database: DatabaseId, leaving: bool },
    /// A task has ended.
    Finished { database: DatabaseId, outcome: Outcome },
    /// The task [`TaskKind::Close`] has told the sessions of a database to end.
    Closed { database: DatabaseId },
    /// Backends with these parameters wait in a ready database.
    Warmed { database: DatabaseId, params: Vec<ParamsId> },
    /// A client is about to drop a database, so sessions without a client must leave every database.
    Vacate,
    /// Time has passed.
    Tick,
    /// The table must not hand out any more databases.
    Close(Closing),
}

/// Cause for the table to stop handing out databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closing {
    ShuttingDown,
    ServerGone,
    /// A panic has left the table in an unknown state, so that an empty one has replaced it.
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

/// The outcome of a task.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The task has succeeded, and its database equals the template.
    Fresh(Proof),
    /// The task has succeeded.
    Done,
    /// SQL has given the name to a different database.
    NameTaken,
    /// The database has the name, but no client may use it. Since it became ready, a crash, a change or new settings have made it or
    /// its session different from a new one.
    Stale,
    /// The database equals its template, but its session for rollback isolation cannot be used again.
    SessionSpent,
    /// The database no longer belongs to pgfresh: SQL has dropped or renamed it, or the leases are closed. The table forgets it.
    DroppedOrRenamed,
    /// The task has stopped to let others go first, and has left nothing behind.
    PutOff,
    /// The database may differ from its template. The text gives the reason.
    Doubt(&'static str),
    /// The task has failed.
    Failed(LeaseError),
}

/// Something that the caller has to do after an event.
#[derive(Debug)]
pub(crate) enum Action {
    /// Pass the answer on to the thread that sent the request.
    Answer { ticket: Ticket, answer: Answer },
    /// Run a task immediately, preferably in the thread that waits for it.
    Run { task: Task, ticket: Ticket },
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The client may open a session in this database. The table already counts the session.
    Session(DatabaseId),
    /// The request has succeeded. If the request was for the lease's server, its change may begin now.
    Done(Option<DatabaseId>),
    /// SQL has created a database with that name.
    Elsewhere,
    /// The request has failed.
    Refused(LeaseError),
}

/// Work on one database. A database never has two tasks at the same time, except for [`TaskKind::Close`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) database: DatabaseId,
    pub(crate) kind: TaskKind,
}

/// The kind of a task, with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TaskKind {
    /// Create the database.
    Create(Source),
    /// Give the database this name, for a lease with this isolation and these parameters.
    Name { to: String, isolation: Isolation, params: Option<ParamsId> },
    /// Rename the database to one of pgfresh's own names, so that the client's name is free.
    Unname,
    /// Reset the database.
    Reset { in_place: bool },
    /// Rename the database to `to`, and keep its contents.
    Keep { to: String },
    /// Make a template with this name from the database.
    Copy { to: String },
    /// Tell the database's sessions to end. Each session reports its own end. This task can run alongside other work, and ends with
    /// [`Event::Closed`].
    Close,
    /// Drop the database.
    Drop,
}

/// The state of all databases and names.
#[derive(Debug, Default)]
pub(crate) struct LeaseTable {
    databases: Databases,
    names: BTreeMap<String, Line>,
    /// Names with pending requests. The set may also hold names without requests until the next check.
    asked: BTreeSet<String>,
    /// Time of the next check of these names, when the first request may time out.
    look_at_lines_at: Option<Instant>,
    supplies: BTreeMap<Source, Supply>,
    /// Names whose leases last until a client releases them.
    pub(crate) retained: BTreeSet<String>,
    /// Recognizes names whose leases begin only with [`Want::Lease`]. Sessions can join such a lease, but cannot begin it.
    pub(crate) is_issued: Option<fn(&str) -> bool>,
    /// Rules for the names of databases that sessions create.
    pub(crate) rules: NameRules,
    /// Maximum number of databases that the server has room for.
    pub(crate) capacity: usize,
    last_id: u64,
    /// The database whose due task the table started last.
    last_due: DatabaseId,
    /// Databases that the table has forgotten since the last call of `take_gone`.
    gone: Vec<DatabaseId>,
    /// Until this time, the table creates only databases that a client waits for.
    quiet_until: Option<Instant>,
    /// When a client last received a database.
    assigned_at: Option<Instant>,
    /// Whether a client has found no ready database since the last call of `take_shortage`.
    is_short: bool,
    closed: Option<Closing>,
    /// Number of databases that pgfresh could not recycle, by reason.
    pub(crate) dropped: BTreeMap<&'static str, u64>,
    pub(crate) failures: u64,
    actions: Actions,
}

/// Actions so far for the event that the table is handling.
#[derive(Debug, Default)]
struct Actions {
    list: Vec<Action>,
    /// Number of actions until a panic that a test has planted. Builds for users don't have this field.
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

    /// Returns an empty table that refuses all requests.
    pub(crate) fn refusing(why: Closing) -> Self {
        Self { closed: Some(why), ..Self::default() }
    }

    /// Plants a panic after the next `actions` actions, for tests.
    #[cfg(debug_assertions)]
    pub(crate) fn plant_panic(&mut self, actions: usize) {
        self.actions.until_panic = Some(actions);
    }

    /// Returns the databases that have gone since the last call. The caller frees everything that belongs to them.
    pub(crate) fn take_gone(&mut self) -> Vec<DatabaseId> {
        std::mem::take(&mut self.gone)
    }

    /// Handles an event, and returns the actions that follow from it.
    pub(crate) fn handle(&mut self, event: Event, now: Instant) -> Vec<Action> {
        self.databases.sort();
        match event {
            Event::Request { ticket, name, want } => self.request(ticket, &name, want, now),
            Event::Leaving { database } => self.leaving(database, now),
            Event::Disconnected { database, leaving } => {
                self.disconnected(database, leaving, now);
                // If no other database makes room for a waiting client, a lease that lingers ends early.
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
