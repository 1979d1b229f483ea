//! Stands for the kernel's report of a process's end, which this system doesn't have.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::process::{Pid, Signal};

/// A descriptor that becomes readable when a process exits. No value of this type exists.
#[derive(Debug)]
pub(crate) struct ExitEvent(Infallible);

impl ExitEvent {
    /// Returns `None`, so that the caller polls.
    pub(crate) fn of(_process: Pid) -> io::Result<Option<Self>> {
        Ok(None)
    }

    /// Sends a signal to the process.
    pub(crate) fn signal(&self, _process: Pid, _signal: Signal) -> io::Result<()> {
        match self.0 {}
    }
}

impl AsFd for ExitEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self.0 {}
    }
}
