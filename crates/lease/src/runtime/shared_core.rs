//! Locks the core. If a thread panics while holding the lock,
//! no other thread sees the state that the panic left behind.

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

    /// Locks the core. If another thread panicked while holding the lock, it may have left the core half changed. The
    /// next thread to take the lock then discards all state, and the core refuses all requests from then on.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        self.0.lock().unwrap_or_else(|poisoned| self.fail(poisoned.into_inner()))
    }

    /// Releases the lock, waits for `signal` for at most `timeout`, and locks the core again.
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
        // Clear the poison, so that the next panic is detected, too.
        self.0.clear_poison();
        core
    }
}

impl MakeRoom for SharedCore {
    fn make_room(&self) {
        self.lock().evict_idle();
    }
}
