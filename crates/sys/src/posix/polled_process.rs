//! Watches a process by its pid. This is a fallback for systems without process handles, such as kernels
//! before 5.3 and containers whose runtime filters the system calls for process handles.
//!
//! After a process has exited, another process can get the same pid. We tell them apart by their start times.

use std::io;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::process::Pid;

use super::poll::wait_for_any;
use super::process_facts::{Process, ProcessState};
use crate::host;

/// Pause between two checks of a process.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// A process that one of our threads polls.
#[derive(Debug)]
pub(crate) struct PolledProcess {
    pid: Pid,
    started: u64,
    /// The read end of a pipe. The polling thread closes the write end when the process has exited.
    pub(crate) end: OwnedFd,
}

impl PolledProcess {
    /// Starts watching the process that currently has the pid `pid`.
    ///
    /// # Errors
    /// Returns `ESRCH` if there is no such process.
    pub(crate) fn begin(pid: Pid) -> io::Result<Self> {
        let started = process(pid).ok_or(rustix::io::Errno::SRCH)?.started;
        let (end, held) = io::pipe()?;
        thread::Builder::new().name("watch".to_owned()).spawn(move || {
            // Stop polling when the pipe breaks. This happens once all its read ends are closed, because then
            // no thread is waiting for the process to exit anymore.
            let is_dropped = || wait_for_any(&mut [PollFd::new(&held, PollFlags::empty())], POLL_INTERVAL);
            while is_running(pid, started) && !is_dropped().unwrap_or(true) {}
        })?;
        Ok(Self { pid, started, end: end.into() })
    }

    /// Returns true if the process has exited, even if its parent hasn't waited for it yet.
    pub(crate) fn has_ended(&self) -> bool {
        !is_running(self.pid, self.started)
    }
}

fn is_running(pid: Pid, started: u64) -> bool {
    process(pid).is_some_and(|process| process.started == started && process.state != ProcessState::Ended)
}

fn process(pid: Pid) -> Option<Process> {
    host::process(u32::try_from(pid.as_raw_nonzero().get()).ok()?)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::wait_readable;

    #[test]
    fn process_end_is_seen_before_reaping() {
        let mut cat = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = Pid::from_child(&cat);
        let watched = PolledProcess::begin(pid).unwrap();
        assert!(!watched.has_ended() && !wait_readable(&watched.end, Duration::from_millis(20)).unwrap());
        drop(cat.stdin.take());
        assert!(wait_readable(&watched.end, Duration::from_mins(1)).unwrap());
        assert!(watched.has_ended());
        cat.wait().unwrap();
        assert_eq!(PolledProcess::begin(pid).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }
}
