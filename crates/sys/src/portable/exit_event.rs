//! Stands in for process notifications, which POSIX doesn't have.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::process::{Pid, Signal};

/// A descriptor that becomes readable when a process exits. This type has no values.
#[derive(Debug)]
pub(crate) struct ExitEvent(Infallible);

impl ExitEvent {
    /// Returns `None`, so that the caller polls the process.
    pub(crate) fn of(_process: Pid) -> io::Result<Option<Self>> {
        Ok(None)
    }

    /// Can't be called, because this type has no values.
    pub(crate) fn signal(&self, _process: Pid, _signal: Signal) -> io::Result<()> {
        match self.0 {}
    }
}

impl AsFd for ExitEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self.0 {}
    }
}
