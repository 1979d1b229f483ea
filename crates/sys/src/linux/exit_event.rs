//! Provides process notifications: the kernel reports the end of
//! a process through a pidfd. Source: `pidfd_open(2)`, Linux 5.3.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use crate::refusals::{is_refused, note_refusal};
use crate::wait_readable;

/// A descriptor that becomes readable when a process exits. It never refers to another process.
#[derive(Debug)]
pub(crate) struct ExitEvent(OwnedFd);

impl ExitEvent {
    /// Opens a descriptor for `process`. Returns `None` if the kernel refuses the call.
    ///
    /// # Errors
    /// Returns `ESRCH` if the process doesn't exist.
    pub(crate) fn of(process: Pid) -> io::Result<Option<Self>> {
        match pidfd_open(process, PidfdFlags::empty()) {
            // `EPERM` can only come from a filter, because `pidfd_open` itself never returns it.
            Err(error) if is_refused(error) => {
                note_refusal("pidfd_open", &error.into());
                Ok(None)
            }
            opened => Ok(Some(Self(opened?))),
        }
    }

    /// Sends a signal to the process. `process` is the pid that this event was opened for.
    ///
    /// # Errors
    /// Returns `ESRCH` if the process has ended, and `EPERM` if it belongs to another user.
    pub(crate) fn signal(&self, process: Pid, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(&self.0, signal) {
            Err(error) if is_refused(error) && wait_readable(&self.0, Duration::ZERO)? => {
                Err(Errno::SRCH.into())
            }
            Err(error) if is_refused(error) => {
                note_refusal("pidfd_send_signal", &error.into());
                Ok(kill_process(process, signal)?)
            }
            sent => Ok(sent?),
        }
    }
}

impl AsFd for ExitEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
