//! State of one database in the table.

use std::time::{Duration, Instant};

use super::{ParamsId, Source, Terms};
use crate::Isolation;

/// State of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DatabaseState {
    /// A task makes the database.
    Creating,
    /// The database equals its template, and no client has it. After a rollback it still has the name of its last lease.
    Ready,
    /// A client has the database.
    Leased(Lease),
    /// A task changes the database.
    Changing(Change),
    /// A task returns the database to the state of its template.
    Resetting(Then),
    /// A task removes the database.
    Retiring,
}

/// A lease in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) terms: Terms,
    /// Number of sessions with a client.
    pub(crate) open: usize,
    /// Number of sessions whose client has gone.
    pub(crate) leaving: usize,
    /// Time at which the lease ends, unless another session comes before.
    pub(crate) deadline: Option<Instant>,
    /// Progress of the order to its sessions to end.
    pub(crate) closing: Closes,
    pub(crate) since: Instant,
    /// Time at which pgfresh kept the database of a failed test. If room is short, the oldest goes first.
    pub(crate) kept: Option<Instant>,
    /// Time at which the lease last got a session or ended a change, or lost its last client.
    pub(crate) moved: Instant,
}

/// Progress of the order to the sessions of a lease to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closes {
    /// The sessions have no such order.
    None,
    /// A task tells the sessions to end, whichever are in the database. Until then, no other lease may have it.
    Running,
    /// The sessions have the order. They may not have ended yet.
    Done,
}

/// A change that nothing else may interrupt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// The database gets a lease's name.
    Naming(String),
    /// The database loses its name. A task then resets or removes it.
    Unnaming { retire: bool },
    /// The database gets a name under which it stays as it is.
    Keeping { to: String, lease: Lease },
    /// The server copies the database.
    Copying(Lease),
    /// The client changes the database's own server.
    Server(Lease),
}

/// Purpose of a reset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Then {
    /// Return to the lease, which goes on.
    Lease(Lease),
    /// Use by the next lease.
    Ready,
}

/// Whether a task is due for a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    None,
    Due,
    /// The task has failed, and the next attempt is due then.
    RetryAt(Instant),
    Running,
}

#[derive(Debug)]
pub(super) struct Database {
    pub(super) source: Source,
    pub(super) isolation: Isolation,
    /// Startup parameters of the session of a database in rollback isolation.
    pub(super) params: Option<ParamsId>,
    pub(super) state: DatabaseState,
    /// Lease's name that the database has in the server, if it has one.
    pub(super) name: Option<String>,
    pub(super) work: Work,
    /// Whether its creation gives way to that of another database.
    pub(super) gives_way: bool,
    /// Number of failures of its task in succession.
    pub(super) failed: u32,
    /// Terms of the lease that gets the database, or that gets another one after this one has lost its name.
    pub(super) terms: Option<Terms>,
    /// Startup parameters of the backends that wait in it.
    pub(super) warm: Vec<ParamsId>,
}

impl Database {
    pub(super) fn new(source: Source) -> Self {
        let isolation =
            if matches!(source, Source::Server(_)) { Isolation::Server } else { Isolation::Clone };
        Self {
            source,
            isolation,
            params: None,
            state: DatabaseState::Creating,
            name: None,
            work: Work::Running,
            gives_way: false,
            failed: 0,
            terms: None,
            warm: Vec::new(),
        }
    }

    pub(super) fn lease(&self) -> Option<&Lease> {
        match &self.state {
            DatabaseState::Leased(lease)
            | DatabaseState::Resetting(Then::Lease(lease))
            | DatabaseState::Changing(
                Change::Keeping { lease, .. } | Change::Copying(lease) | Change::Server(lease),
            ) => Some(lease),
            _ => None,
        }
    }

    pub(super) fn lease_mut(&mut self) -> Option<&mut Lease> {
        match &mut self.state {
            DatabaseState::Leased(lease)
            | DatabaseState::Resetting(Then::Lease(lease))
            | DatabaseState::Changing(
                Change::Keeping { lease, .. } | Change::Copying(lease) | Change::Server(lease),
            ) => Some(lease),
            _ => None,
        }
    }

    /// Whether its lease has ended, and a task is to make it ready again.
    pub(super) fn is_returning(&self) -> bool {
        matches!(
            self.state,
            DatabaseState::Changing(Change::Unnaming { retire: false })
                | DatabaseState::Resetting(Then::Ready)
        )
    }

    /// Whether the database is on its way out, and leaves only its room.
    pub(super) fn is_removed(&self) -> bool {
        matches!(
            self.state,
            DatabaseState::Changing(Change::Unnaming { retire: true }) | DatabaseState::Retiring
        )
    }

    /// Whether the database soon makes room for another one. A task that has failed may fail for ever.
    pub(super) fn frees_room(&self) -> bool {
        self.is_removed() && !matches!(self.work, Work::RetryAt(_))
    }

    /// Whether a backend with these parameters waits in the database.
    pub(super) fn is_warm_for(&self, params: Option<ParamsId>) -> bool {
        params.is_some_and(|params| self.warm.contains(&params))
    }
}

impl Lease {
    pub(super) fn new(terms: Terms, now: Instant) -> Self {
        let closing = Closes::None;
        Self { terms, open: 0, leaving: 0, deadline: None, closing, since: now, kept: None, moved: now }
    }

    pub(super) fn sessions(&self) -> usize {
        self.open + self.leaving
    }

    /// Whether the deadline of the lease has passed. The lease goes on while pgfresh ends its sessions, because sessions of
    /// the next lease would get that order, too.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.closing != Closes::Running && self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Sets the deadline if the lease has no session and does not last until its release.
    pub(super) fn begin_to_end(&mut self, now: Instant) {
        let ends = self.sessions() == 0 && !self.terms.retained;
        self.deadline = ends.then(|| now + self.terms.linger);
    }

    /// Whether the lease ends with its remaining sessions, whose clients have gone.
    pub(super) fn is_over(&self) -> bool {
        self.open == 0 && self.leaving > 0 && self.ends_with_its_sessions()
    }

    /// Whether the lease ends as soon as it has no session.
    pub(super) fn ends_with_its_sessions(&self) -> bool {
        self.terms.linger == Duration::ZERO && !self.terms.retained
    }
}
