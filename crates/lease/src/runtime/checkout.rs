//! Lets a task check out its database's resources, so that the task can use
//! them without holding the lock. Dropping the guard returns the resources.

use std::mem;
use std::ops::{Deref, DerefMut};
use std::thread;

use crate::runtime::resources::{Resources, SharedServer};
use crate::runtime::shared_core::SharedCore;
use crate::table::DatabaseId;

/// The resources of a task's database.
#[derive(Debug)]
pub(crate) enum Access<'a> {
    Exclusive(CheckedOut<'a>),
    /// A leased server has its own lock and may serve several tasks, so it is never checked out.
    Server(SharedServer),
}

/// A database's resources, checked out for exclusive use. Dropping this guard returns them to the pool. If the thread
/// is panicking, the database is retired first, because the task may have left it half changed.
#[derive(Debug)]
pub(crate) struct CheckedOut<'a> {
    core: &'a SharedCore,
    id: DatabaseId,
    resources: Resources,
}

impl SharedCore {
    /// Checks out a database's resources. Returns `None` if the database is gone or another task has the resources.
    pub(crate) fn check_out(&self, id: DatabaseId) -> Option<Access<'_>> {
        let resources = self.lock().pool.take(id)?;
        Some(match resources {
            Resources::Server(server) => Access::Server(server),
            resources => Access::Exclusive(CheckedOut { core: self, id, resources }),
        })
    }

    /// Adds a new database whose resources are checked out to the task creating it.
    pub(crate) fn insert_checked_out(&self, id: DatabaseId, resources: Resources) -> CheckedOut<'_> {
        self.lock().pool.insert_checked_out(id);
        CheckedOut { core: self, id, resources }
    }
}

impl CheckedOut<'_> {
    /// Replaces the resources with those for the database's next state.
    pub(crate) fn change(&mut self, change: impl FnOnce(Resources) -> Resources) {
        self.resources = change(mem::take(&mut self.resources));
    }
}

impl Deref for CheckedOut<'_> {
    type Target = Resources;

    fn deref(&self) -> &Resources {
        &self.resources
    }
}

impl DerefMut for CheckedOut<'_> {
    fn deref_mut(&mut self) -> &mut Resources {
        &mut self.resources
    }
}

impl Drop for CheckedOut<'_> {
    fn drop(&mut self) {
        let mut resources = mem::take(&mut self.resources);
        if thread::panicking() {
            resources = resources.retire();
        }
        let mut core = self.core.lock();
        if !core.has_room() {
            resources.close_waiting();
        }
        let grows = resources.idle() > core.pool.idle_of(self.id);
        let unknown = core.pool.put_back(self.id, resources);
        if grows {
            core.trim_idle(self.id);
        }
        drop(core);
        // If the table has forgotten the database, close its sessions. Since this can take a while, first release the
        // lock.
        drop(unknown);
    }
}
