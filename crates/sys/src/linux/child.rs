//! Our own children: their ends, and signals to them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Child;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

/// A child by a handle: readable once it has ended, and never another process, as its number may be.
#[derive(Debug)]
pub struct ChildHandle(OwnedFd);

impl ChildHandle {
    /// Of a child that nobody has waited for yet.
    pub fn of(child: &Child) -> io::Result<Self> {
        Ok(Self(pidfd_open(Pid::from_child(child), PidfdFlags::empty())?))
    }

    /// Ends it at once; one that has ended already is no error.
    pub fn kill(&self) {
        let _ = pidfd_send_signal(&self.0, Signal::KILL);
    }
}

impl AsFd for ChildHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<ChildHandle> for OwnedFd {
    fn from(handle: ChildHandle) -> Self {
        handle.0
    }
}

/// Sends a signal to a child that nobody has waited for yet: its number is still its own.
pub fn signal(child: &Child, signal: Signal) -> io::Result<()> {
    Ok(kill_process(Pid::from_child(child), signal)?)
}
