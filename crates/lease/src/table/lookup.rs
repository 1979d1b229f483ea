//! Answers questions about the table for status reports and other modules, without changing it.

use std::time::Instant;

use super::database::{Database, DatabaseState};
use super::line::{Line, NameState};
use super::{DatabaseId, LeaseTable, Terms};
use crate::isolation::Isolation;

/// A summary of one lease.
#[derive(Debug, Clone)]
pub(crate) struct LeaseView {
    pub(crate) name: String,
    pub(crate) database: Option<DatabaseId>,
    pub(crate) terms: Terms,
    pub(crate) sessions: usize,
    pub(crate) since: Option<Instant>,
}

impl LeaseTable {
    /// Returns all leases, sorted by name.
    pub(crate) fn leases(&self) -> Vec<LeaseView> {
        self.names.keys().filter_map(|name| self.lease(name)).collect()
    }

    /// Returns the names of all leases with a database, including those just beginning or ending.
    pub(crate) fn held_names(&self) -> Vec<String> {
        let is_held = |line: &Line| match line.state {
            NameState::Held(id) => {
                self.databases.get(id).is_some_and(|database| database.state != DatabaseState::Ready)
            }
            _ => false,
        };
        self.names.iter().filter(|(_, line)| is_held(line)).map(|(name, _)| name.clone()).collect()
    }

    /// Returns the lease with this name, if there is one.
    pub(crate) fn lease(&self, name: &str) -> Option<LeaseView> {
        let (database, terms, sessions, since) = match &self.names.get(name)?.state {
            NameState::Reserved(terms) => (None, terms, 0, None),
            NameState::Held(id) => {
                let lease = self.databases.get(*id)?.lease()?;
                (Some(*id), &lease.terms, lease.open, Some(lease.since))
            }
            NameState::Free | NameState::Wanted(_) => return None,
        };
        Some(LeaseView { name: name.to_owned(), database, terms: terms.clone(), sessions, since })
    }

    /// Returns the database that has the name or is about to receive it.
    pub(crate) fn database_named(&self, name: &str) -> Option<DatabaseId> {
        match self.names.get(name)?.state {
            NameState::Held(id) => Some(id),
            _ => None,
        }
    }

    /// Returns true if the lease has a single session and ends with it.
    pub(crate) fn ends_with_its_session(&self, id: DatabaseId) -> bool {
        let lease = self.databases.get(id).and_then(Database::lease);
        lease.is_some_and(|lease| lease.sessions() == 1 && lease.ends_with_its_sessions())
    }

    /// Returns true if a lease has the database.
    pub(crate) fn is_leased(&self, id: DatabaseId) -> bool {
        self.databases.get(id).and_then(Database::lease).is_some()
    }

    /// Returns the databases whose leases have a deadline, earliest first.
    pub(crate) fn by_end(&self) -> impl Iterator<Item = DatabaseId> {
        self.databases.by_end()
    }

    /// Returns the ready databases.
    pub(crate) fn ready_databases(&self) -> impl Iterator<Item = DatabaseId> {
        self.databases.ready().map(|(id, _)| id)
    }

    /// Returns databases in order of increasing need: those being removed, those of leases with a deadline, and the
    /// ready ones.
    pub(crate) fn by_need(&self) -> impl Iterator<Item = DatabaseId> {
        let removed = self.databases.busy().filter(|(_, database)| database.is_removed()).map(|(id, _)| id);
        // Clients get the first ready database first, so put it last.
        let mut ready: Vec<_> = self.ready_databases().collect();
        ready.reverse();
        removed.chain(self.by_end()).chain(ready)
    }

    /// Returns true if pgfresh keeps a database with this name for a failed test.
    pub(crate) fn is_kept(&self, name: &str) -> bool {
        let database = self.database_named(name).and_then(|id| self.databases.get(id));
        database.and_then(Database::lease).is_some_and(|lease| lease.kept.is_some())
    }

    /// Returns the isolation of the lease with this name, or `None` if there isn't one.
    pub(crate) fn isolation(&self, name: &str) -> Option<Isolation> {
        self.lease(name).map(|lease| lease.terms.isolation)
    }

    /// Returns true if any name is in use, so that databases may be changing and pgfresh has to read the log.
    pub(crate) fn is_used(&self) -> bool {
        !self.names.is_empty()
    }
}
