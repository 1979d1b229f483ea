//! The lock on the core. After a panic under the lock, no thread sees the state that the panicking thread has left.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use crate::admin::MakeRoom;
use crate::runtime::core::Core;

/// The core behind its lock.
#[derive(Debug)]
pub(crate) struct SharedCore(Mutex<Core>);

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

impl MakeRoom for SharedCore {
    fn make_room(&self) {
        self.lock().evict_idle();
    }
}
