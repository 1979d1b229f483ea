//! One database in the table.

use std::time::{Duration, Instant};

use super::{ParamsId, Source, Terms};
use crate::Isolation;

/// Where a database is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DatabaseState {
    /// It is being made.
    Creating,
    /// It equals its template, and no client has it. One that is rolled back still has its last lease's name.
    Ready,
    /// A client has it.
    Leased(Lease),
    /// One change is made of it.
    Changing(Change),
    /// It is returned to its template's state.
    Resetting(Then),
    /// It is removed.
    Retiring,
}

/// A lease in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) terms: Terms,
    /// Sessions with a client.
    pub(crate) open: usize,
    /// Sessions whose client is gone.
    pub(crate) leaving: usize,
    /// When it ends, unless another session comes before.
    pub(crate) deadline: Option<Instant>,
    /// Whether its sessions were told to end.
    pub(crate) closing: Closes,
    pub(crate) since: Instant,
    /// When its database was kept, of one that a failed test left: the oldest goes first where room is short.
    pub(crate) kept: Option<Instant>,
    /// When it last served who waited for it, or lost its last client.
    pub(crate) moved: Instant,
}

/// How far the sessions of a lease have been told to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closes {
    /// They have not.
    None,
    /// They are being told, whichever are in the database: until that is done, it is of no other lease.
    Running,
    /// They have been; they may not have ended.
    Done,
}

/// A change that nothing else may interrupt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// It gets a lease's name.
    Naming(String),
    /// It loses its name, and is then reset or removed.
    Unnaming { retire: bool },
    /// It gets a name under which it stays as it is.
    Keeping { to: String, lease: Lease },
    /// It is copied.
    Copying(Lease),
    /// Its own server is changed.
    Server(Lease),
}

/// What a database is reset for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Then {
    /// Its lease goes on.
    Lease(Lease),
    /// The next lease.
    Ready,
}

/// Whether a task is due for a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    None,
    Due,
    /// It has failed, and is tried again then.
    RetryAt(Instant),
    Running,
}

#[derive(Debug)]
pub(super) struct Database {
    pub(super) source: Source,
    pub(super) isolation: Isolation,
    /// Of the session of a database in rollback isolation.
    pub(super) params: Option<ParamsId>,
    pub(super) state: DatabaseState,
    /// The client's name that it has in the server.
    pub(super) name: Option<String>,
    pub(super) work: Work,
    /// Whether its making gives way to that of another one.
    pub(super) gives_way: bool,
    /// How often its task has failed, one time after another.
    pub(super) failed: u32,
    /// Of the lease that it is about to have, or of the one that follows when it has lost its name.
    pub(super) terms: Option<Terms>,
    /// For which sessions backends wait in it.
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

    /// Whether its lease has ended, and it is made ready again.
    pub(super) fn is_returning(&self) -> bool {
        matches!(
            self.state,
            DatabaseState::Changing(Change::Unnaming { retire: false })
                | DatabaseState::Resetting(Then::Ready)
        )
    }

    /// Whether nothing comes of it but room.
    pub(super) fn is_removed(&self) -> bool {
        matches!(
            self.state,
            DatabaseState::Changing(Change::Unnaming { retire: true }) | DatabaseState::Retiring
        )
    }

    /// Whether there is room for another one soon: what has failed may fail for ever.
    pub(super) fn frees_room(&self) -> bool {
        self.is_removed() && !matches!(self.work, Work::RetryAt(_))
    }

    /// Whether a ready one serves a session of that kind without anything else being made.
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

    /// Whether it is over by its deadline. It goes on while its sessions are told to end: one of the next lease would be told, too.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.closing != Closes::Running && self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Sets the end, if it has no session and it does not last.
    pub(super) fn begin_to_end(&mut self, now: Instant) {
        let ends = self.sessions() == 0 && !self.terms.retained;
        self.deadline = ends.then(|| now + self.terms.linger);
    }

    /// Whether it is over as soon as its last session has ended.
    pub(super) fn is_over(&self) -> bool {
        self.open == 0 && self.leaving > 0 && self.ends_with_its_sessions()
    }

    /// Whether nothing keeps it once it has no session.
    pub(super) fn ends_with_its_sessions(&self) -> bool {
        self.terms.linger == Duration::ZERO && !self.terms.retained
    }
}
