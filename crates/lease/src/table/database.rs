//! Defines the state of one database in the table and of its lease.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::failures::Failures;
use super::{ParamsId, Source, Terms};
use crate::error::LeaseError;
use crate::isolation::Isolation;

/// State of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DatabaseState {
    /// A task is creating the database.
    Creating,
    /// The database equals its template and waits for a lease. After a rollback, it retains its last lease's name for
    /// now.
    Ready,
    /// A lease has the database.
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
    /// Number of sessions with a connected client.
    pub(crate) open: usize,
    /// Number of sessions whose client has disconnected but whose backend is still running.
    pub(crate) leaving: usize,
    /// When the lease ends unless a new session starts before then. Set while the lease has no sessions.
    pub(crate) deadline: Option<Instant>,
    /// The progress in terminating all of the lease's sessions.
    pub(crate) closing: Closes,
    pub(crate) since: Instant,
    /// When pgfresh kept the database for examining a failed test. If space runs short, the longest-kept database is
    /// removed first.
    pub(crate) kept: Option<Instant>,
    /// When the lease last made progress: it received a session, finished a change, or lost its last client. The
    /// timeouts of waiting requests start from here.
    pub(crate) moved: Instant,
}

/// The progress in terminating all of a lease's sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closes {
    /// The sessions may continue, since pgfresh hasn't tried to terminate them.
    None,
    /// A task is terminating all sessions in the database. Until the task is done, the database must not go to another
    /// lease, whose sessions the task would terminate as well.
    Running,
    /// The task has signaled all sessions to terminate, but some may still be running.
    Done,
}

/// A change in progress. The database can do nothing else until the change is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// The database is being renamed to the name of the lease that receives it.
    Naming(String),
    /// The database is being renamed from its lease's name to one of pgfresh's own, to be reset afterwards (or removed
    /// if `retire` is set).
    Unnaming { retire: bool },
    /// The database is being renamed to `to`. Under this name, pgfresh keeps the database's current contents.
    Keeping { to: String, lease: Lease },
    /// The server is copying the database to make a template from it.
    Copying(Lease),
    /// A client is restarting, stopping or crashing the lease's own server.
    Server(Lease),
}

/// The next step for a database after its reset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Then {
    /// Return the database to its lease, which continues.
    Lease(Lease),
    /// Wait for the next lease, because the last one is over.
    Ready,
}

/// Whether and when a database needs a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    None,
    Due,
    /// The last attempt failed. The next one is due at this time.
    RetryAt(Instant),
    Running,
}

#[derive(Debug)]
pub(super) struct Database {
    pub(super) source: Source,
    pub(super) isolation: Isolation,
    /// In rollback isolation, the startup parameters of the one session that pgfresh keeps open in the database.
    pub(super) params: Option<ParamsId>,
    pub(super) state: DatabaseState,
    /// The lease's name, if the database has that name in the server. `None` if it has one of pgfresh's own names.
    pub(super) name: Option<String>,
    pub(super) work: Work,
    /// True if pgfresh stops creating this database, because a client is
    /// waiting for a copy of another template and that copy comes first.
    pub(super) gives_way: bool,
    /// When the task that creates the database began.
    pub(super) begun: Instant,
    /// Whether the database has ever been given to a lease.
    pub(super) was_leased: bool,
    /// Failures of the database's current task. `None` if its last attempt succeeded.
    pub(super) failures: Option<Failures>,
    /// Error of the last failure. `None` without failures.
    pub(super) error: Option<Arc<LeaseError>>,
    /// The waiting lease's terms, if the database is being renamed for one. If the name moves to another database
    /// instead, these are the terms for that one.
    pub(super) terms: Option<Terms>,
    /// Startup parameters of the idle backends waiting in the database for its next client.
    pub(super) warm: Vec<ParamsId>,
}

impl Database {
    pub(super) fn new(source: Source, begun: Instant) -> Self {
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
            begun,
            was_leased: false,
            failures: None,
            error: None,
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

    /// Returns true if the lease is over and the database may become ready again.
    fn may_return(&self) -> bool {
        matches!(
            self.state,
            DatabaseState::Changing(Change::Unnaming { retire: false })
                | DatabaseState::Resetting(Then::Ready)
        )
    }

    /// Returns true if the lease is over and the database is about to become ready again. After a failure of the task,
    /// this returns false, because the task may keep failing.
    pub(super) fn is_returning(&self) -> bool {
        self.may_return() && self.failures.is_none()
    }

    /// Returns true if the lease is over.
    pub(super) fn is_ending(&self) -> bool {
        self.may_return() || self.is_removed()
    }

    /// Returns true if the database is being removed. Until it is gone, it counts toward the capacity, because it still
    /// takes up space.
    pub(super) fn is_removed(&self) -> bool {
        matches!(
            self.state,
            DatabaseState::Changing(Change::Unnaming { retire: true }) | DatabaseState::Retiring
        )
    }

    /// Returns true if this database is being removed and will soon leave room for another. After a failed removal,
    /// this returns false, because the removal may keep failing.
    pub(super) fn frees_room(&self) -> bool {
        self.is_removed() && self.failures.is_none()
    }

    /// Returns true if an idle backend with these startup parameters is
    /// waiting in the database. If `params` is `None`, any backend counts.
    pub(super) fn is_warm_for(&self, params: Option<ParamsId>) -> bool {
        params.map_or(!self.warm.is_empty(), |params| self.warm.contains(&params))
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

    /// Returns true if the lease is past its deadline and may end. The lease must not end while a task
    /// is terminating its sessions, because the task could also terminate sessions of the next lease.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.closing != Closes::Running && self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Sets the deadline of a lease without sessions, unless the lease lasts until its release.
    pub(super) fn begin_to_end(&mut self, now: Instant) {
        let ends = self.sessions() == 0 && !self.terms.retained;
        self.deadline = ends.then(|| now + self.terms.linger);
    }

    /// Returns true if all clients have disconnected and the lease ends as soon as the server notices and terminates
    /// their sessions.
    pub(super) fn is_over(&self) -> bool {
        self.open == 0 && self.leaving > 0 && self.ends_with_its_sessions()
    }

    /// Returns true if the lease ends with its last session, without lingering.
    pub(super) fn ends_with_its_sessions(&self) -> bool {
        self.terms.linger == Duration::ZERO && !self.terms.retained
    }
}
