//! The lock on the core, and the guard with which a task checks the resources of its database out.
//!
//! After a panic under the lock, no thread sees the state that the panicking thread has left.

use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use crate::admin::MakeRoom;
use crate::runtime::core::Core;
use crate::runtime::resources::{Resources, SharedServer};
use crate::table::DatabaseId;

/// The core behind its lock.
#[derive(Debug)]
pub(crate) struct SharedCore(Mutex<Core>);

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
    pub(crate) fn new(core: Core) -> Self {
        Self(Mutex::new(core))
    }

    /// Locks the core. A thread that has panicked under the lock may have changed only a part of the core. The next thread that
    /// takes the lock then discards all state, so that the core refuses all requests from there on.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        self.0.lock().unwrap_or_else(|poisoned| self.fail(poisoned.into_inner()))
    }

    /// Releases the lock until another thread sends the signal, or until the timeout is over.
    pub(crate) fn wait<'a>(
        &'a self,
        signal: &Condvar,
        core: MutexGuard<'a, Core>,
        timeout: Duration,
    ) -> MutexGuard<'a, Core> {
        match signal.wait_timeout(core, timeout) {
            Ok((core, _)) => core,
            Err(poisoned) => self.fail(poisoned.into_inner().0),
        }
    }

    fn fail<'a>(&self, mut core: MutexGuard<'a, Core>) -> MutexGuard<'a, Core> {
        core.fail();
        // Each later panic must be noticed again.
        self.0.clear_poison();
        core
    }
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

impl MakeRoom for SharedCore {
    fn make_room(&self) {
        self.lock().evict_idle();
    }
}
