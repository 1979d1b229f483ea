//! Lease table: every database and every name, each in exactly one state. It has no I/O, no clock and no threads.
//!
//! [`LeaseTable::handle`] takes an [`Event`] and the time, and returns [`Action`]s: answers to those who wait, and tasks for
//! the caller to run. [`LeaseTable::next_task`] hands out the work of the background. The outcome of a task comes back as an
//! event.
//!
//! ```text
//! Creating ─▶ Ready ─▶ Changing(Naming) ─▶ Leased ─▶ Changing(Unnaming) ─▶ Resetting ─▶ Ready
//!    │                                      │  ▲                              │
//!    ▼ failed                               ▼  │ fresh                        ▼ in doubt
//!   gone                                 Resetting                          Retiring ─▶ gone
//! ```
//!
//! A lease leaves the table only when its database no longer has the name. A database becomes ready only with a [`Proof`].
//! Any failure on the way leads to `Retiring`.

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
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use database::{DatabaseState, Then};
use databases::Databases;
use line::Line;
use supply::Supply;
pub(crate) use work::WORKERS;

use crate::{Isolation, LeaseError, NameRules};

/// Pause before the first retry of a failed task. Each further pause is twice as long, up to [`LONGEST_RETRY`].
const RETRY: Duration = Duration::from_millis(200);
const LONGEST_RETRY: Duration = Duration::from_secs(5);

/// Returns the pause before the next attempt. `failures` counts those before the last one, and each doubles the pause, up to
/// `longest`.
fn pause_after(failures: u32, longest: Duration) -> Duration {
    (RETRY * 2_u32.saturating_pow(failures)).min(longest)
}

/// Identifies a database in the table. The table never uses an id again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct DatabaseId(pub(crate) u64);

/// Identifies a request, so that its answer finds the thread that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket(pub(crate) u64);

/// Identifies a set of startup parameters. Sessions with equal ones are interchangeable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ParamsId(pub(crate) u64);

/// Proof that a database equals its template. Only code that has compared or copied the database makes one.
#[derive(Debug)]
pub(crate) struct Proof(());

impl Proof {
    /// Returns a proof. Only code that has shown freshness may call this.
    pub(crate) fn new() -> Self {
        Self(())
    }
}

/// Source of ready databases.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Source {
    /// A copy of the template of that name.
    Template(String),
    /// A leased server that has the template of that name.
    Server(String),
}

/// A client's request for a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Want {
    /// A session.
    Session {
        params: ParamsId,
        /// Terms of the lease, if the name has none yet.
        terms: Terms,
        /// Terms that the client has requested, in contrast to defaults.
        explicit: Explicit,
        /// Whether to return the database to the state of its template first.
        reset: bool,
    },
    /// A lease without a session.
    Lease { params: Option<ParamsId>, terms: Terms },
    /// A return to the state of the template, under the same name.
    Reset { close: bool },
    /// An end of the lease.
    Release,
    /// A new name for the database, which stays as it is.
    Keep { to: String },
    /// A template that is a copy of the database as it is.
    Copy { to: String, close: bool },
    /// A change of the lease's own server.
    Server,
}

/// Terms that a session has explicitly requested. An existing lease must have the same ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Explicit {
    pub(crate) isolation: bool,
    pub(crate) template: bool,
}

/// Terms of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) template: String,
    pub(crate) isolation: Isolation,
    /// Time that the lease outlives its last session.
    pub(crate) linger: Duration,
    /// Whether the lease lasts until its release.
    pub(crate) retained: bool,
}

impl Want {
    /// Returns the parameters of the requested session, or of the first session that a lease expects.
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

/// Something that has happened, which the table handles.
#[derive(Debug)]
pub(crate) enum Event {
    /// A client has sent a request for a name.
    Request { ticket: Ticket, name: String, want: Want },
    /// The client of an open session has gone; its backend has not ended yet.
    Leaving { database: DatabaseId },
    /// A session has ended. `leaving`: the table has already had a `Leaving` for it.
    Disconnected { database: DatabaseId, leaving: bool },
    /// A session has ended because its database is gone, or its transaction broken. Its lease ends, too.
    Lost { database: DatabaseId, leaving: bool },
    /// A task has ended.
    Finished { database: DatabaseId, outcome: Outcome },
    /// The server has got the order to end the sessions of a database, from [`TaskKind::Close`].
    Closed { database: DatabaseId },
    /// Backends wait in a ready database for sessions with these parameters.
    Warmed { database: DatabaseId, params: Vec<ParamsId> },
    /// A client is about to drop a database, so no session may stay in a database without a client.
    Vacate,
    /// Time has passed.
    Tick,
    /// The table must hand out no further databases.
    Close(Closing),
}

/// Reason to hand out no further databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closing {
    ShuttingDown,
    ServerGone,
}

impl Closing {
    fn error(self) -> LeaseError {
        match self {
            Self::ShuttingDown => LeaseError::Closed,
            Self::ServerGone => LeaseError::Gone,
        }
    }
}

/// Outcome of a task.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The task has succeeded, and its database equals the template.
    Fresh(Proof),
    /// The task has succeeded.
    Done,
    /// SQL has given the name to another database.
    NameTaken,
    /// The database has the name, but its session is out of date: the settings that it read at its start have changed.
    Unfit,
    /// The database equals its template, but no client may use its session in rollback isolation again.
    SessionSpent,
    /// The database no longer exists.
    Vanished,
    /// The task has stopped to let others go first, and has left nothing behind.
    PutOff,
    /// The database may differ from its template, for this reason.
    Doubt(&'static str),
    /// The task has failed.
    Failed(LeaseError),
}

/// Consequence of an event.
#[derive(Debug)]
pub(crate) enum Action {
    /// The caller passes on the answer to a request.
    Answer { ticket: Ticket, answer: Answer },
    /// The caller runs a task at once, best in the thread that waits for it.
    Run { task: Task, ticket: Ticket },
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The client may open a session in this database. The session counts already.
    Session(DatabaseId),
    /// The request has succeeded. After a request for the server, its change may begin.
    Done(Option<DatabaseId>),
    /// SQL has made a database of that name.
    Elsewhere,
    /// The request has failed.
    Refused(LeaseError),
}

/// Work on one database. No database has two tasks at a time, except for [`TaskKind::Close`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) database: DatabaseId,
    pub(crate) kind: TaskKind,
}

/// Kind of a task, and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TaskKind {
    /// Make the database.
    Create(Source),
    /// Give the database that name, for a lease in that isolation with these parameters.
    Name { to: String, isolation: Isolation, params: Option<ParamsId> },
    /// Give the database a name of pgfresh's, so that the client's is free.
    Unname,
    /// Return the database to the state of its template.
    Reset { in_place: bool },
    /// Give the database that name, and keep it as it is.
    Keep { to: String },
    /// Make a template of that name from the database.
    Copy { to: String },
    /// Tell the database's sessions to end. Each reports its own end. Runs beside other work, and ends with
    /// [`Event::Closed`].
    Close,
    /// Remove the database.
    Drop,
}

/// State of all databases and names.
#[derive(Debug, Default)]
pub(crate) struct LeaseTable {
    databases: Databases,
    names: BTreeMap<String, Line>,
    /// Names with requests. Others may be among them until the next look.
    asked: BTreeSet<String>,
    /// Time of the next look at these names, when a request may time out first.
    look_at_lines_at: Option<Instant>,
    supplies: BTreeMap<Source, Supply>,
    /// Names whose leases last until their release.
    pub(crate) retained: BTreeSet<String>,
    /// Recognizes names whose leases begin by [`Want::Lease`] only. Sessions join such a lease.
    pub(crate) is_issued: Option<fn(&str) -> bool>,
    /// Rules for the names of databases that sessions create.
    pub(crate) rules: NameRules,
    /// Most databases that the server has room for.
    pub(crate) capacity: usize,
    last_id: u64,
    /// Database whose due task the table started last.
    last_due: DatabaseId,
    /// Databases that the table has forgotten since the last `take_gone`.
    gone: Vec<DatabaseId>,
    /// Time until which the table makes only databases that a client waits for.
    quiet_until: Option<Instant>,
    /// Time at which a client last got a database.
    assigned_at: Option<Instant>,
    /// Whether a client has found no ready database since the last `take_shortage`.
    is_short: bool,
    closed: Option<Closing>,
    /// Number of databases that pgfresh could not recycle, by reason.
    pub(crate) dropped: BTreeMap<&'static str, u64>,
    pub(crate) failures: u64,
    /// Consequences so far of the event that the table handles now.
    actions: Vec<Action>,
}

impl LeaseTable {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, ..Self::default() }
    }

    /// Returns the databases that have gone since the last call. The caller drops all that belongs to them.
    pub(crate) fn take_gone(&mut self) -> Vec<DatabaseId> {
        std::mem::take(&mut self.gone)
    }

    /// Handles an event, and returns its consequences.
    pub(crate) fn handle(&mut self, event: Event, now: Instant) -> Vec<Action> {
        self.databases.sort();
        match event {
            Event::Request { ticket, name, want } => self.request(ticket, &name, want, now),
            Event::Leaving { database } => self.leaving(database, now),
            Event::Disconnected { database, leaving } => {
                self.disconnected(database, leaving, now);
                // A lease that lingers makes room for a client that waits, if nothing else does.
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
        std::mem::take(&mut self.actions)
    }
}
