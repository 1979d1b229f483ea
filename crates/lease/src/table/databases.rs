//! Stores all databases in the table, grouped by the work they may need.
//!
//! There can be thousands of leased databases. Thanks to the groups,
//! the table doesn't spend time on databases that don't need any work.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::DatabaseId;
use super::database::{Closes, Database, DatabaseState, Work};

#[derive(Debug, Default)]
pub(super) struct Databases {
    all: BTreeMap<DatabaseId, Sorted>,
    ready: BTreeSet<DatabaseId>,
    busy: BTreeSet<DatabaseId>,
    /// Lease deadlines, with their databases.
    ends: BTreeSet<(Instant, DatabaseId)>,
    /// Databases that may have changed since the last sort and may now be in the wrong groups.
    touched: BTreeSet<DatabaseId>,
}

#[derive(Debug)]
struct Sorted {
    database: Database,
    /// The database's deadline in `ends`.
    end: Option<Instant>,
}

impl Databases {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn get(&self, id: DatabaseId) -> Option<&Database> {
        self.all.get(&id).map(|sorted| &sorted.database)
    }

    pub(super) fn get_mut(&mut self, id: DatabaseId) -> Option<&mut Database> {
        let sorted = self.all.get_mut(&id)?;
        self.touched.insert(id);
        Some(&mut sorted.database)
    }

    pub(super) fn insert(&mut self, id: DatabaseId, database: Database) {
        self.all.insert(id, Sorted { database, end: None });
        self.touched.insert(id);
    }

    pub(super) fn remove(&mut self, id: DatabaseId) {
        // The next sort removes the database from the other groups.
        if let Some(Sorted { end: Some(end), .. }) = self.all.remove(&id) {
            self.ends.remove(&(end, id));
        }
        self.touched.insert(id);
    }

    /// Returns all databases. Since there can be thousands, don't call this for every event.
    pub(super) fn iter(&self) -> impl Iterator<Item = (DatabaseId, &Database)> {
        self.all.iter().map(|(id, sorted)| (*id, &sorted.database))
    }

    /// Returns the ready databases.
    pub(super) fn ready(&self) -> impl Iterator<Item = (DatabaseId, &Database)> {
        self.among(&self.ready).filter(|(_, database)| database.state == DatabaseState::Ready)
    }

    /// Returns the databases that need attention: all except ready and leased databases without a task, but including
    /// leased ones whose lease is over.
    pub(super) fn busy(&self) -> impl Iterator<Item = (DatabaseId, &Database)> {
        self.among(&self.busy).filter(|(_, database)| is_busy(database))
    }

    /// Returns the earliest lease deadline, with its database.
    pub(super) fn next_end(&mut self) -> Option<(Instant, DatabaseId)> {
        self.sort();
        self.ends.first().copied()
    }

    /// Returns the databases whose leases have a deadline, earliest first, as of the last sort.
    pub(super) fn by_end(&self) -> impl Iterator<Item = DatabaseId> {
        self.ends.iter().map(|(_, id)| *id)
    }

    fn among<'a>(
        &'a self,
        sorted: &'a BTreeSet<DatabaseId>,
    ) -> impl Iterator<Item = (DatabaseId, &'a Database)> {
        sorted.union(&self.touched).filter_map(|id| Some((*id, self.get(*id)?)))
    }

    /// Moves each changed database to its new groups.
    pub(super) fn sort(&mut self) {
        while let Some(id) = self.touched.pop_first() {
            let sorted = self.all.get_mut(&id);
            let database = sorted.as_ref().map(|sorted| &sorted.database);
            put(&mut self.ready, id, database.is_some_and(|database| database.state == DatabaseState::Ready));
            put(&mut self.busy, id, database.is_some_and(is_busy));
            let end = database.and_then(end_of);
            if let Some(sorted) = sorted
                && sorted.end != end
            {
                if let Some(old) = std::mem::replace(&mut sorted.end, end) {
                    self.ends.remove(&(old, id));
                }
                self.ends.extend(end.map(|end| (end, id)));
            }
        }
    }
}

fn put(set: &mut BTreeSet<DatabaseId>, id: DatabaseId, belongs: bool) {
    if belongs {
        set.insert(id);
    } else {
        set.remove(&id);
    }
}

fn is_busy(database: &Database) -> bool {
    let rests = match &database.state {
        DatabaseState::Ready => true,
        DatabaseState::Leased(lease) => !lease.is_over(),
        _ => false,
    };
    !rests || database.work != Work::None
}

/// Returns the deadline of the database's lease. While a task is terminating
/// the lease's sessions, this is `None`, because the lease must not end.
fn end_of(database: &Database) -> Option<Instant> {
    match &database.state {
        DatabaseState::Leased(lease) if lease.closing != Closes::Running => lease.deadline,
        _ => None,
    }
}
