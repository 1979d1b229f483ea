//! Provides process notifications: the kernel reports the end of a process. Source: kqueue(2), `EVFILT_PROC`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::null_mut;
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::kqueue::{Event, EventFilter, EventFlags, ProcessEvents, kevent_timespec, kqueue};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::refusals::note_refusal;
use crate::wait_readable;

/// A kernel queue that becomes readable when a process exits. It never reports the end of another process.
#[derive(Debug)]
pub(crate) struct ExitEvent(OwnedFd);

impl ExitEvent {
    /// Opens a queue for `process`. Returns `None` if the kernel refuses the call or finds no running process. The
    /// caller then polls the process table.
    #[allow(unsafe_code)]
    pub(crate) fn of(process: Pid) -> io::Result<Option<Self>> {
        let queue = kqueue()?;
        let filter = EventFilter::Proc { pid: process, flags: ProcessEvents::EXIT };
        let change = [Event::new(filter, EventFlags::ADD, null_mut())];
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the filter refers to a process, not to a descriptor.
        match unsafe { kevent_timespec(&queue, &change, &mut [] as &mut [Event], Some(&none)) } {
            Ok(_) => Ok(Some(Self(queue))),
            Err(Errno::SRCH) => Ok(None),
            Err(error @ (Errno::ACCESS | Errno::PERM | Errno::NOSYS)) => {
                note_refusal("kevent", &error.into());
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a signal to the process. `process` is the pid that this event was opened for. macOS can only signal a
    /// pid. If the process isn't our child, it could end after the check, and another process could get its pid.
    ///
    /// # Errors
    /// Returns `ESRCH` if the process has ended, and `EPERM` if it belongs to another user.
    pub(crate) fn signal(&self, process: Pid, signal: Signal) -> io::Result<()> {
        if wait_readable(&self.0, Duration::ZERO)? {
            return Err(Errno::SRCH.into());
        }
        Ok(kill_process(process, signal)?)
    }
}

impl AsFd for ExitEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
