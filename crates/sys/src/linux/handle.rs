//! Process handles: waiting for the end of a process, and signals.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, pidfd_open, pidfd_send_signal, waitid,
};

/// Pidfd of a process. It becomes readable when the process ends, and never refers to another process with a reused
/// pid.
#[derive(Debug)]
pub struct ProcessHandle(OwnedFd);

impl ProcessHandle {
    /// Opens a handle for a child that has not been reaped.
    pub fn of(child: &Child) -> io::Result<Self> {
        Self::of_pid(Pid::from_child(child))
    }

    /// Opens a handle for the process that has the pid `number` now. `None` if there is none.
    #[must_use]
    pub fn of_number(number: u32) -> Option<Self> {
        let pid = i32::try_from(number).ok().and_then(Pid::from_raw)?;
        Self::of_pid(pid).ok()
    }

    pub(crate) fn of_pid(pid: Pid) -> io::Result<Self> {
        Ok(Self(pidfd_open(pid, PidfdFlags::empty())?))
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.0, signal)?)
    }

    /// Returns the exit status of a child without reaping it. `None` if it still runs.
    pub fn exit_status(&self) -> io::Result<Option<ExitStatus>> {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let ended = waitid(WaitId::PidFd(self.0.as_fd()), look)?;
        Ok(ended.map(|ended| {
            let code = ended.exit_status().unwrap_or(0) << 8;
            ExitStatus::from_raw(ended.terminating_signal().unwrap_or(code))
        }))
    }

    /// Kills the process. A process that has ended already is no error.
    #[expect(clippy::let_underscore_must_use, reason = "one that has ended already is no error")]
    pub fn kill(&self) {
        let _ = self.signal(Signal::KILL);
    }
}

impl AsFd for ProcessHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Sends a signal to a child that has not been reaped, so that its pid cannot belong to another process.
pub fn signal(child: &Child, signal: Signal) -> io::Result<()> {
    Ok(kill_process(Pid::from_child(child), signal)?)
}
