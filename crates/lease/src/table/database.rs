//! The state of one database in the table, including that of its lease.

use std::time::{Duration, Instant};

use super::{ParamsId, Source, Terms};
use crate::isolation::Isolation;

/// State of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DatabaseState {
    /// A task is creating the database.
    Creating,
    /// The database equals its template, and no client has it. After a rollback, it still has the name of its last lease.
    Ready,
    /// A client has the database.
    Leased(Lease),
    /// A task is changing the database.
    Changing(Change),
    /// A task is resetting the database.
    Resetting(Then),
    /// A task is removing the database.
    Retiring,
}

/// A lease that has a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) terms: Terms,
    /// Number of sessions that have a client.
    pub(crate) open: usize,
    /// Number of sessions whose client has disconnected.
    pub(crate) leaving: usize,
    /// When the lease ends, unless a new session comes first.
    pub(crate) deadline: Option<Instant>,
    /// Whether pgfresh has told the sessions to end.
    pub(crate) closing: Closes,
    pub(crate) since: Instant,
    /// When pgfresh kept the database for a failed test. If space is short, the oldest kept database goes first.
    pub(crate) kept: Option<Instant>,
    /// When the lease last received a session, finished a change, or lost its last client.
    pub(crate) moved: Instant,
}

/// Whether pgfresh has told the sessions of a lease to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closes {
    /// No task has told the sessions to end.
    None,
    /// A task is telling all sessions in the database to end. Until it is done, no other lease may have the database.
    Running,
    /// A task has told the sessions to end. They may not have ended yet.
    Done,
}

/// A change that must not be interrupted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// The database is receiving a lease's name.
    Naming(String),
    /// The database is losing its name. A task then resets or removes it.
    Unnaming { retire: bool },
    /// The database is receiving a new name, under which pgfresh keeps it unchanged.
    Keeping { to: String, lease: Lease },
    /// The server is copying the database.
    Copying(Lease),
    /// A client is changing the lease's own server.
    Server(Lease),
}

/// The use of a database after a reset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Then {
    /// Return to the same lease, which goes on.
    Lease(Lease),
    /// Wait for the next lease.
    Ready,
}

/// Whether a task is due for a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    None,
    Due,
    /// The task has failed, and the next attempt is due at this time.
    RetryAt(Instant),
    Running,
}

#[derive(Debug)]
pub(super) struct Database {
    pub(super) source: Source,
    pub(super) isolation: Isolation,
    /// Startup parameters of the database's session for rollback isolation.
    pub(super) params: Option<ParamsId>,
    pub(super) state: DatabaseState,
    /// The lease's name that the database has in the server, if any.
    pub(super) name: Option<String>,
    pub(super) work: Work,
    /// Whether the creation of the database gives way to that of a different one.
    pub(super) gives_way: bool,
    /// Number of consecutive failures of the database's task.
    pub(super) failed: u32,
    /// Terms of the lease that is to receive the database, or terms on which the name is to receive a different database.
    pub(super) terms: Option<Terms>,
    /// Startup parameters of the backends that wait in the database.
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

    /// Whether the lease has ended and a task is to make the database ready again.
    pub(super) fn is_returning(&self) -> bool {
        matches!(
            self.state,
            DatabaseState::Changing(Change::Unnaming { retire: false })
                | DatabaseState::Resetting(Then::Ready)
        )
    }

    /// Whether the database is being removed. It then only counts because it still takes up space.
    pub(super) fn is_removed(&self) -> bool {
        matches!(
            self.state,
            DatabaseState::Changing(Change::Unnaming { retire: true }) | DatabaseState::Retiring
        )
    }

    /// Whether the database will soon make room for another one. A database whose task has failed doesn't count, because the task
    /// may fail forever.
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

    /// Whether the deadline of the lease has passed. The lease doesn't end while a task is telling its sessions to end, because the
    /// task could also end sessions of the next lease.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.closing != Closes::Running && self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Sets the deadline if the lease has no sessions, unless it lasts until its release.
    pub(super) fn begin_to_end(&mut self, now: Instant) {
        let ends = self.sessions() == 0 && !self.terms.retained;
        self.deadline = ends.then(|| now + self.terms.linger);
    }

    /// Whether the clients of all remaining sessions have disconnected, and the lease ends with these sessions.
    pub(super) fn is_over(&self) -> bool {
        self.open == 0 && self.leaving > 0 && self.ends_with_its_sessions()
    }

    /// Whether the lease ends as soon as it has no sessions.
    pub(super) fn ends_with_its_sessions(&self) -> bool {
        self.terms.linger == Duration::ZERO && !self.terms.retained
    }
}
