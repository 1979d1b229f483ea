//! The lease table: every database and every name, each in exactly one state. No I/O, no clock, no threads.
//!
//! [`LeaseTable::handle`] takes an [`Event`] and the time, and returns [`Action`]s: answers to those who wait, and tasks
//! for the caller to run. [`LeaseTable::next_task`] hands out the work of the background. What a task came to is an
//! event again.
//!
//! ```text
//! Creating ─▶ Ready ─▶ Changing(Naming) ─▶ Leased ─▶ Changing(Unnaming) ─▶ Resetting ─▶ Ready
//!    │                                      │  ▲                              │
//!    ▼ failed                               ▼  │ fresh                        ▼ in doubt
//!   gone                                 Resetting                          Retiring ─▶ gone
//! ```
//!
//! A lease leaves the table only when its database no longer has the name. A database becomes ready only with a
//! [`Proof`]. Whatever fails on the way leads to `Retiring`.

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

/// How long a failed task waits before it is tried again, twice as long each time, up to [`LONGEST_RETRY`].
const RETRY: Duration = Duration::from_millis(200);
const LONGEST_RETRY: Duration = Duration::from_secs(5);

/// How long to wait after so many failures before the last one: twice as long each time.
fn pause_after(failures: u32, longest: Duration) -> Duration {
    (RETRY * 2_u32.saturating_pow(failures)).min(longest)
}

/// Names a database in the table; never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct DatabaseId(pub(crate) u64);

/// Names a request, so that its answer finds who asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket(pub(crate) u64);

/// Names a set of start-up parameters: sessions with equal ones are interchangeable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ParamsId(pub(crate) u64);

/// That a database equals its template: made by the code that has compared or copied it.
#[derive(Debug)]
pub(crate) struct Proof(());

impl Proof {
    /// To be called where freshness has been shown, and nowhere else.
    pub(crate) fn new() -> Self {
        Self(())
    }
}

/// What a ready database is made from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Source {
    /// A copy of the template of that name.
    Template(String),
    /// A server of its own, which has the template of that name.
    Server(String),
}

/// What a client wants of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Want {
    /// A session.
    Session {
        params: ParamsId,
        /// If the name is new.
        terms: Terms,
        /// Which of the terms were asked for, and are not only what is usual.
        explicit: Explicit,
        /// Return the database to its template's state first.
        reset: bool,
    },
    /// A lease without a session.
    Lease { params: Option<ParamsId>, terms: Terms },
    /// The template's state again, under the same name.
    Reset { close: bool },
    /// The end of the lease.
    Release,
    /// The database as it is, under another name.
    Keep { to: String },
    /// A copy of the database as it is, to be a template.
    Copy { to: String, close: bool },
    /// A change of the lease's own server.
    Server,
}

/// Which terms a session has asked for: those of a lease that is there have to be the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Explicit {
    pub(crate) isolation: bool,
    pub(crate) template: bool,
}

/// On which terms a name is leased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) template: String,
    pub(crate) isolation: Isolation,
    /// How long the lease outlives its last session.
    pub(crate) linger: Duration,
    /// Whether it lasts until it is released.
    pub(crate) retained: bool,
}

impl Want {
    /// The parameters that the session starts with, where a session is asked for.
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

/// What has happened.
#[derive(Debug)]
pub(crate) enum Event {
    /// A client wants something of a name.
    Request { ticket: Ticket, name: String, want: Want },
    /// The client of an open session has gone; its backend has not ended yet.
    Leaving { database: DatabaseId },
    /// A session has ended. `leaving`: its client was known to be gone.
    Disconnected { database: DatabaseId, leaving: bool },
    /// A session has ended because its database is gone, or its transaction broken: so has the lease.
    Lost { database: DatabaseId, leaving: bool },
    /// A task has ended.
    Finished { database: DatabaseId, outcome: Outcome },
    /// Sessions of a database have been told to end, by [`TaskKind::Close`].
    Closed { database: DatabaseId },
    /// Backends wait in a ready database for sessions with these parameters.
    Warmed { database: DatabaseId, params: Vec<ParamsId> },
    /// No session may stay in a database that no client has.
    Vacate,
    /// Time has passed.
    Tick,
    /// Nothing more is handed out.
    Close(Closing),
}

/// Why nothing more is handed out.
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

/// What a task came to.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It is done; what it made equals the template.
    Fresh(Proof),
    /// It is done.
    Done,
    /// The name was given to another database by SQL.
    NameTaken,
    /// The database has the name, and is not fit for it: what its session would have read at its start has changed.
    Unfit,
    /// It equals its template, and its session in rollback isolation may not be used again.
    SessionSpent,
    /// There is no such database any more.
    Vanished,
    /// It was stopped on the way to let others go first, and nothing is left of it.
    PutOff,
    /// It may not equal its template.
    Doubt(&'static str),
    /// It could not be done.
    Failed(LeaseError),
}

/// What follows from an event.
#[derive(Debug)]
pub(crate) enum Action {
    /// A request is answered.
    Answer { ticket: Ticket, answer: Answer },
    /// A task is to be run at once, best by who waits for it.
    Run { task: Task, ticket: Ticket },
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A session may be opened in this database; it counts already.
    Session(DatabaseId),
    /// It is done. For a change of a server the change may begin.
    Done(Option<DatabaseId>),
    /// The name is that of a database made by SQL.
    Elsewhere,
    /// It cannot be.
    Refused(LeaseError),
}

/// Work on one database. None has two at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) database: DatabaseId,
    pub(crate) kind: TaskKind,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TaskKind {
    /// Make it.
    Create(Source),
    /// Give it that name, for a lease in that isolation with these parameters.
    Name { to: String, isolation: Isolation, params: Option<ParamsId> },
    /// Give it a name of its own, so that the client's is free.
    Unname,
    /// Return it to its template's state.
    Reset { in_place: bool },
    /// Give it that name, and let it be.
    Keep { to: String },
    /// Make a template of that name of it.
    Copy { to: String },
    /// Tell its sessions to end; they tell of their end. Comes beside other work, and to [`Event::Closed`].
    Close,
    /// Remove it.
    Drop,
}

/// All that is known of databases and names.
#[derive(Debug, Default)]
pub(crate) struct LeaseTable {
    databases: Databases,
    names: BTreeMap<String, Line>,
    /// Names that a client wants something of, and perhaps others.
    asked: BTreeSet<String>,
    /// When these are looked at again, for the patience of one may have ended then.
    look_at_lines_at: Option<Instant>,
    supplies: BTreeMap<Source, Supply>,
    /// Names whose leases last until they are released.
    pub(crate) retained: BTreeSet<String>,
    /// Whether a lease of that name begins by [`Want::Lease`] only, and sessions join it.
    pub(crate) is_issued: Option<fn(&str) -> bool>,
    /// The names of databases that sessions create.
    pub(crate) rules: NameRules,
    /// How many databases there is room for.
    pub(crate) capacity: usize,
    last_id: u64,
    /// Whose task was started last.
    last_due: DatabaseId,
    /// Databases that the table has forgotten, since this was last taken.
    gone: Vec<DatabaseId>,
    /// Until when nothing is made unless a client waits for it.
    quiet_until: Option<Instant>,
    /// When a client was last given a database.
    assigned_at: Option<Instant>,
    /// Whether a client has found no database ready, since this was last looked at.
    is_short: bool,
    closed: Option<Closing>,
    /// Databases that were not recycled, by reason.
    pub(crate) dropped: BTreeMap<&'static str, u64>,
    pub(crate) failures: u64,
    /// What follows from the event that is being handled.
    actions: Vec<Action>,
}

impl LeaseTable {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, ..Self::default() }
    }

    /// Databases that have gone since this was last asked: nothing that belongs to them is needed any more.
    pub(crate) fn take_gone(&mut self) -> Vec<DatabaseId> {
        std::mem::take(&mut self.gone)
    }

    /// Takes note of what has happened.
    pub(crate) fn handle(&mut self, event: Event, now: Instant) -> Vec<Action> {
        self.databases.sort();
        match event {
            Event::Request { ticket, name, want } => self.request(ticket, &name, want, now),
            Event::Leaving { database } => self.leaving(database, now),
            Event::Disconnected { database, leaving } => {
                self.disconnected(database, leaving, now);
                // One that lingers makes room for who waits, if there is no other.
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
