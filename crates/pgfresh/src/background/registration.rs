//! Registers named servers, so that other processes can find them like background servers.

use std::fs;

use storage::{Attempt, Cache};
use sys::Lock;

use super::folder;
use super::slot::{BackgroundSlot, ServerInfo, note};
use crate::failure::Failure;

/// The exclusive right to run the server with a certain name. Other processes find the server through this
/// registration.
#[derive(Debug)]
pub(crate) struct Registration {
    slot: BackgroundSlot,
    _owner: Lock,
    /// Start lock. "pgfresh stop" waits until this process releases it.
    starting: Option<Lock>,
}

impl Registration {
    /// Acquires the right to run the server with this key. If another process already has this right, returns that
    /// process's ID as the inner error.
    pub(crate) fn begin(cache: &Cache, key: &str) -> Result<Result<Self, u32>, Failure> {
        let slot = BackgroundSlot(folder(cache)?.join(key));
        let starting = Some(slot.begin()?);
        let owner = Lock::try_take(&slot.owner()).attempt("lock", &slot.owner())?;
        Ok(match owner {
            Some(owner) => Ok(Self { slot, _owner: owner, starting }),
            None => Err(slot.describe().map_or(0, |about| about.pid)),
        })
    }

    /// Makes the server visible to other processes.
    pub(crate) fn announce(&mut self, about: &ServerInfo) -> Result<(), Failure> {
        self.slot.announce(about)?;
        self.starting = None;
        Ok(())
    }
}

impl Drop for Registration {
    /// Removes the slot, unless another process holds the start lock and will remove or reuse the slot itself.
    fn drop(&mut self) {
        note("remove", &self.slot.about(), fs::remove_file(self.slot.about()));
        // While this lock is held, no other process can start a server in the directory.
        let alone = self.starting.take().or_else(|| self.slot.try_begin());
        if alone.is_some() {
            self.slot.remove();
        }
    }
}
