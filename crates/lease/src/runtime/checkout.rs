//! The guard with which a task checks the resources of its database out, so that it can use them without the lock.

use std::mem;
use std::ops::{Deref, DerefMut};
use std::thread;

use crate::runtime::resources::{Resources, SharedServer};
use crate::runtime::shared_core::SharedCore;
use crate::table::DatabaseId;

/// The resources for a task.
#[derive(Debug)]
pub(crate) enum Access<'a> {
    Exclusive(CheckedOut<'a>),
    /// A leased server has its own lock, so no task checks it out.
    Server(SharedServer),
}

/// Exclusive use of the resources of a database. Dropping it puts them back. If the thread panics, it retires them first, because
/// the task may have changed only a part of the database.
#[derive(Debug)]
pub(crate) struct CheckedOut<'a> {
    core: &'a SharedCore,
    id: DatabaseId,
    resources: Resources,
}

impl SharedCore {
    /// Checks the resources of a database out. Returns `None` if the pool doesn't have them.
    pub(crate) fn check_out(&self, id: DatabaseId) -> Option<Access<'_>> {
        let resources = self.lock().pool.take(id)?;
        Some(match resources {
            Resources::Server(server) => Access::Server(server),
            resources => Access::Exclusive(CheckedOut { core: self, id, resources }),
        })
    }

    /// Adds a new database whose task already uses its resources.
    pub(crate) fn insert_checked_out(&self, id: DatabaseId, resources: Resources) -> CheckedOut<'_> {
        self.lock().pool.insert_checked_out(id);
        CheckedOut { core: self, id, resources }
    }
}

impl CheckedOut<'_> {
    /// Replaces the resources by those of a different state.
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
        // Closing sessions can take a while, so it happens without the lock.
        drop(unknown);
    }
}
