//! What there is, for people and programs to look at.

use std::time::Instant;

use super::database::{Database, DatabaseState};
use super::line::{Line, NameState};
use super::{DatabaseId, LeaseTable, Terms};
use crate::Isolation;

/// One lease.
#[derive(Debug, Clone)]
pub(crate) struct LeaseView {
    pub(crate) name: String,
    pub(crate) database: Option<DatabaseId>,
    pub(crate) terms: Terms,
    pub(crate) sessions: usize,
    pub(crate) since: Option<Instant>,
}

impl LeaseTable {
    /// All leases, by name.
    pub(crate) fn leases(&self) -> Vec<LeaseView> {
        self.names.keys().filter_map(|name| self.lease(name)).collect()
    }

    /// The names of all databases that a client has, or had until now.
    pub(crate) fn held_names(&self) -> Vec<String> {
        let is_held = |line: &Line| match line.state {
            NameState::Held(id) => {
                self.databases.get(id).is_some_and(|database| database.state != DatabaseState::Ready)
            }
            _ => false,
        };
        self.names.iter().filter(|(_, line)| is_held(line)).map(|(name, _)| name.clone()).collect()
    }

    /// The lease of that name.
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

    /// The database that a name is held by, whatever is being done to it.
    pub(crate) fn holder(&self, name: &str) -> Option<DatabaseId> {
        match self.names.get(name)?.state {
            NameState::Held(id) => Some(id),
            _ => None,
        }
    }

    /// Whether the lease of a database ends with the one session that it has.
    pub(crate) fn ends_with_its_session(&self, id: DatabaseId) -> bool {
        let lease = self.databases.get(id).and_then(Database::lease);
        lease.is_some_and(|lease| lease.sessions() == 1 && lease.ends_with_its_sessions())
    }

    /// Whether a database is leased.
    pub(crate) fn is_leased(&self, id: DatabaseId) -> bool {
        self.databases.get(id).and_then(Database::lease).is_some()
    }

    /// The databases whose leases end by themselves, unless another session comes before; the next first.
    pub(crate) fn by_end(&self) -> impl Iterator<Item = DatabaseId> {
        self.databases.by_end()
    }

    /// The databases that are ready for a client.
    pub(crate) fn ready_databases(&self) -> impl Iterator<Item = DatabaseId> {
        self.databases.ready().map(|(id, _)| id)
    }

    /// All databases that no client has, and those of leases that end by themselves; those first that are needed last, if ever.
    pub(crate) fn by_need(&self) -> impl Iterator<Item = DatabaseId> {
        let removed = self.databases.busy().filter(|(_, database)| database.is_removed()).map(|(id, _)| id);
        // The first is used first.
        let mut ready: Vec<_> = self.ready_databases().collect();
        ready.reverse();
        removed.chain(self.by_end()).chain(ready)
    }

    /// Whether that name is of a database that a failed test left.
    pub(crate) fn is_kept(&self, name: &str) -> bool {
        let database = self.holder(name).and_then(|id| self.databases.get(id));
        database.and_then(Database::lease).is_some_and(|lease| lease.kept.is_some())
    }

    /// How the lease of that name is isolated.
    pub(crate) fn isolation(&self, name: &str) -> Option<Isolation> {
        self.lease(name).map(|lease| lease.terms.isolation)
    }

    /// Whether anything is leased: what has to be watched.
    pub(crate) fn is_used(&self) -> bool {
        !self.names.is_empty()
    }
}
