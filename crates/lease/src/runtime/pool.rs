//! Holds the resources of all databases in the table. A task checks out its database's resources to use them without
//! holding the lock.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use crate::backends::client::Client;
use crate::backends::spares::Spares;
use crate::runtime::resources::{PooledCopy, Resources, SharedServer};
use crate::table::DatabaseId;

/// The resources of all databases.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    entries: HashMap<DatabaseId, Entry>,
    /// Idle backends in databases without a lease.
    pub(crate) spares: Spares,
    /// Leased servers that remained when the table failed. They run until the leases close.
    orphans: Vec<SharedServer>,
}

#[derive(Debug)]
struct Entry {
    /// Clients of the lease's open sessions.
    clients: Vec<Arc<Client>>,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Here(Resources),
    CheckedOut(Summary),
}

/// The values that other threads need while a task has checked out the resources.
#[derive(Debug, Default)]
struct Summary {
    /// Number of idle sessions in the database.
    idle: usize,
    /// The database's oid. `None` for a database in a leased server.
    oid: Option<u32>,
    /// Name of the last lease.
    lease: Option<Arc<str>>,
}

impl Summary {
    fn of(resources: &Resources) -> Self {
        let copy = resources.copy();
        Self {
            idle: resources.idle(),
            oid: resources.identity().map(|identity| identity.address.oid),
            lease: copy.and_then(|copy| copy.last_lease.clone()),
        }
    }
}

impl Pool {
    /// Adds the resources of a new database.
    pub(crate) fn insert(&mut self, id: DatabaseId, resources: Resources) {
        self.entries.insert(id, Entry { clients: Vec::new(), place: Place::Here(resources) });
    }

    /// Adds a new database whose resources are checked out from the start, by the task that creates it.
    pub(crate) fn insert_checked_out(&mut self, id: DatabaseId) {
        let place = Place::CheckedOut(Summary::default());
        self.entries.insert(id, Entry { clients: Vec::new(), place });
    }

    /// Removes a database. Dropping the result closes the database's sessions, so the caller should first release the
    /// lock.
    pub(crate) fn remove(&mut self, id: DatabaseId) -> Option<Resources> {
        match self.entries.remove(&id)?.place {
            Place::Here(resources) => Some(resources),
            Place::CheckedOut(_) => None,
        }
    }

    /// Removes all databases after the table has failed, except leased servers, which must be stopped when the leases
    /// close.
    pub(crate) fn fail(&mut self) {
        let servers = mem::take(&mut self.entries).into_values().filter_map(Entry::into_server);
        self.orphans.extend(servers);
        self.spares.clear();
    }

    /// Removes and returns all leased servers.
    pub(crate) fn take_servers(&mut self) -> Vec<SharedServer> {
        let ids: Vec<_> =
            self.entries.iter().filter(|(_, entry)| entry.is_server()).map(|(id, _)| *id).collect();
        let entries: Vec<_> = ids.iter().filter_map(|id| self.entries.remove(id)).collect();
        entries.into_iter().filter_map(Entry::into_server).chain(self.orphans.drain(..)).collect()
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.spares.clear();
    }

    /// Checks out a database's resources. A leased server remains in the pool, and the caller gets a second handle to
    /// the server. Returns `None` if the database is gone or another task has checked out its resources.
    pub(crate) fn take(&mut self, id: DatabaseId) -> Option<Resources> {
        let place = &mut self.entries.get_mut(&id)?.place;
        match place {
            Place::Here(Resources::Server(server)) => Some(Resources::Server(Arc::clone(server))),
            Place::Here(resources) => {
                let summary = Summary::of(resources);
                match mem::replace(place, Place::CheckedOut(summary)) {
                    Place::Here(resources) => Some(resources),
                    Place::CheckedOut(_) => None,
                }
            }
            Place::CheckedOut(_) => None,
        }
    }

    /// Returns resources to the pool. If the table has forgotten the database in the meantime, the caller gets them
    /// back.
    pub(crate) fn put_back(&mut self, id: DatabaseId, resources: Resources) -> Option<Resources> {
        match self.entries.get_mut(&id) {
            Some(entry) => {
                entry.place = Place::Here(resources);
                None
            }
            None => Some(resources),
        }
    }

    /// Returns a database's resources unless a task has checked them out.
    pub(crate) fn get(&self, id: DatabaseId) -> Option<&Resources> {
        match &self.entries.get(&id)?.place {
            Place::Here(resources) => Some(resources),
            Place::CheckedOut(_) => None,
        }
    }

    /// Returns a database's resources, mutably, unless a task has checked them out.
    pub(crate) fn get_mut(&mut self, id: DatabaseId) -> Option<&mut Resources> {
        match &mut self.entries.get_mut(&id)?.place {
            Place::Here(resources) => Some(resources),
            Place::CheckedOut(_) => None,
        }
    }

    /// Returns the database's copy, unless the database wasn't made from a template or is checked out.
    pub(crate) fn copy_mut(&mut self, id: DatabaseId) -> Option<&mut PooledCopy> {
        self.get_mut(id)?.copy_mut()
    }

    /// Returns the clients of the open sessions in a database.
    pub(crate) fn clients(&self, id: DatabaseId) -> &[Arc<Client>] {
        self.entries.get(&id).map_or(&[], |entry| &entry.clients)
    }

    /// Returns the clients of the open sessions in a database, mutably.
    pub(crate) fn clients_mut(&mut self, id: DatabaseId) -> Option<&mut Vec<Arc<Client>>> {
        self.entries.get_mut(&id).map(|entry| &mut entry.clients)
    }

    /// Counts the idle backends in all databases that satisfy `among`.
    pub(crate) fn waiting_among(&self, among: impl Fn(DatabaseId) -> bool) -> usize {
        let waiting = |(id, entry): (&DatabaseId, &Entry)| match &entry.place {
            Place::Here(resources) if among(*id) => resources.copy().map(|copy| copy.waiting.len()),
            _ => None,
        };
        self.entries.iter().filter_map(waiting).sum()
    }

    /// Counts the idle sessions in all databases.
    pub(crate) fn idle(&self) -> usize {
        let idle = |entry: &Entry| match &entry.place {
            Place::Here(resources) => resources.idle(),
            Place::CheckedOut(summary) => summary.idle,
        };
        self.entries.values().map(idle).sum::<usize>() + self.spares.len()
    }

    /// Counts the idle sessions in a database. If a task has checked it out, returns the count from before.
    pub(crate) fn idle_of(&self, id: DatabaseId) -> usize {
        match self.entries.get(&id).map(|entry| &entry.place) {
            Some(Place::Here(resources)) => resources.idle(),
            Some(Place::CheckedOut(summary)) => summary.idle,
            None => 0,
        }
    }

    /// Closes the idle sessions in all databases.
    pub(crate) fn close_waiting(&mut self) {
        self.spares.clear();
        for entry in self.entries.values_mut() {
            if let Place::Here(resources) = &mut entry.place {
                resources.close_waiting();
            }
        }
    }

    /// Returns a database's oid, or `None` for a database in a leased server.
    pub(crate) fn oid_of(&self, id: DatabaseId) -> Option<u32> {
        match &self.entries.get(&id)?.place {
            Place::Here(resources) => resources.identity().map(|identity| identity.address.oid),
            Place::CheckedOut(summary) => summary.oid,
        }
    }

    /// Returns the name of the current lease of the database with this oid, or else of its last lease.
    pub(crate) fn lease_of(&self, oid: u32) -> Option<&str> {
        let id = *self.entries.keys().find(|id| self.oid_of(**id) == Some(oid))?;
        match &self.entries.get(&id)?.place {
            Place::Here(resources) => resources.copy()?.last_lease.as_deref(),
            Place::CheckedOut(summary) => summary.lease.as_deref(),
        }
    }
}

impl Entry {
    fn is_server(&self) -> bool {
        matches!(self.place, Place::Here(Resources::Server(_)))
    }

    fn into_server(self) -> Option<SharedServer> {
        match self.place {
            Place::Here(Resources::Server(server)) => Some(server),
            _ => None,
        }
    }
}
