//! Provides process handles, for sending signals to processes and waiting for
//! them to exit. Unlike a pid, a handle always refers to the same process.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};

use super::polled_process::PolledProcess;
use crate::system::exit_event::ExitEvent;

/// A handle to a process. It becomes readable when the process exits. Even if the pid is later reused, the
/// handle never refers to the new process.
#[derive(Debug)]
pub struct ProcessHandle {
    pid: Pid,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// The kernel reports the end of the process.
    Notified(ExitEvent),
    /// The kernel doesn't report the end of the process, so one of our threads polls the process.
    Polled(PolledProcess),
}

impl ProcessHandle {
    /// Opens a handle for a child that hasn't been reaped yet.
    pub fn of(child: &Child) -> io::Result<Self> {
        Self::of_pid(Pid::from_child(child))
    }

    /// Opens a handle for the process that currently has the pid `number`. Returns
    /// `None` if no process has this pid, or if the handle can't be opened.
    #[must_use]
    pub fn of_number(number: u32) -> Option<Self> {
        let pid = i32::try_from(number).ok().and_then(Pid::from_raw)?;
        Self::of_pid(pid).ok()
    }

    /// Opens a handle for the process that currently has this pid.
    pub(crate) fn of_pid(pid: Pid) -> io::Result<Self> {
        let kind = match ExitEvent::of(pid)? {
            Some(event) => Kind::Notified(event),
            None => Kind::Polled(PolledProcess::begin(pid)?),
        };
        Ok(Self { pid, kind })
    }

    /// Returns the pid that the process had when the handle was opened.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends a signal to the process.
    ///
    /// # Errors
    /// Returns `ESRCH` if the process has ended, and `EPERM` if it belongs to another user.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match &self.kind {
            Kind::Notified(event) => event.signal(self.pid, signal),
            Kind::Polled(watched) if watched.has_ended() => Err(Errno::SRCH.into()),
            // The check above has just succeeded. But unless the process is our child, it
            // could still exit before the signal arrives, and a new process could get its pid.
            Kind::Polled(_) => Ok(kill_process(self.pid, signal)?),
        }
    }

    /// Returns the exit status of a child without reaping it. Returns `None` if the child is still running.
    ///
    /// # Errors
    /// Returns `ECHILD` if this process isn't the parent, or has already reaped the child.
    pub fn exit_status(&self) -> io::Result<Option<ExitStatus>> {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let ended = waitid(WaitId::Pid(self.pid), look)?;
        Ok(ended.map(|ended| {
            let code = ended.exit_status().unwrap_or(0) << 8;
            ExitStatus::from_raw(ended.terminating_signal().unwrap_or(code))
        }))
    }

    /// Kills the process unless it has already exited.
    #[expect(clippy::let_underscore_must_use, reason = "one that has ended already is no error")]
    pub fn kill(&self) {
        let _ = self.signal(Signal::KILL);
    }
}

impl AsFd for ProcessHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.kind {
            Kind::Notified(event) => event.as_fd(),
            Kind::Polled(watched) => watched.end.as_fd(),
        }
    }
}

/// Sends a signal to all processes in the group that a child leads. The child must not be reaped yet.
///
/// # Errors
/// Returns `ESRCH` if no process is left in the group, and `EPERM` if all of them belong to other users.
pub fn signal_group(leader: &Child, signal: Signal) -> io::Result<()> {
    Ok(kill_process_group(Pid::from_child(leader), signal)?)
}

/// Sends a signal to a child. The child must not be reaped yet, otherwise its pid could belong to another
/// process.
pub fn signal(child: &Child, signal: Signal) -> io::Result<()> {
    Ok(kill_process(Pid::from_child(child), signal)?)
}
