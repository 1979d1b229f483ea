//! Process handles, for sending signals to processes and waiting for them to exit. Unlike a pid, a handle
//! never refers to the wrong process.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, pidfd_open,
    pidfd_send_signal, waitid,
};

use super::poll::wait_readable;
use super::polled_process::PolledProcess;

/// A handle to a process. It becomes readable when the process exits. Even if the pid is later reused, the
/// handle never refers to the new process.
#[derive(Debug)]
pub struct ProcessHandle {
    pid: Pid,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// The kernel's own process handle.
    Pidfd(OwnedFd),
    /// A substitute for the kernel's handle on systems without one.
    Polled(PolledProcess),
}

impl ProcessHandle {
    /// Opens a handle for a child that hasn't been reaped yet.
    pub fn of(child: &Child) -> io::Result<Self> {
        Self::of_pid(Pid::from_child(child))
    }

    /// Opens a handle for the process that currently has the pid `number`. Returns `None` if no such process
    /// exists.
    #[must_use]
    pub fn of_number(number: u32) -> Option<Self> {
        let pid = i32::try_from(number).ok().and_then(Pid::from_raw)?;
        Self::of_pid(pid).ok()
    }

    pub(crate) fn of_pid(pid: Pid) -> io::Result<Self> {
        let kind = match pidfd_open(pid, PidfdFlags::empty()) {
            Err(error) if is_refused(error) => Kind::Polled(PolledProcess::begin(pid)?),
            handle => Kind::Pidfd(handle?),
        };
        Ok(Self { pid, kind })
    }

    /// Sends a signal to the process.
    ///
    /// # Errors
    /// Returns `ESRCH` if the process has ended, and `EPERM` if it belongs to another user.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match &self.kind {
            Kind::Pidfd(handle) => match pidfd_send_signal(handle, signal) {
                Err(error) if is_refused(error) && wait_readable(handle, Duration::ZERO)? => {
                    Err(Errno::SRCH.into())
                }
                Err(error) if is_refused(error) => Ok(kill_process(self.pid, signal)?),
                sent => Ok(sent?),
            },
            Kind::Polled(watched) if watched.has_ended() => Err(Errno::SRCH.into()),
            // The check above has just succeeded, so the pid still belongs to this process.
            Kind::Polled(_) => Ok(kill_process(self.pid, signal)?),
        }
    }

    /// Returns the exit status of a child without reaping it. Returns `None` if the child is still running.
    ///
    /// # Errors
    /// Returns `ECHILD` if this process is not the parent, or has already reaped the child.
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

/// Returns true if an error means that the kernel doesn't support process handles or that a system call
/// filter rejects them. `EPERM` can only come from such a filter, because `pidfd_open` itself never returns
/// it. Source: the manual pages `pidfd_open` and `seccomp`.
fn is_refused(error: Errno) -> bool {
    matches!(error, Errno::NOSYS | Errno::PERM)
}

impl AsFd for ProcessHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.kind {
            Kind::Pidfd(handle) => handle.as_fd(),
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
