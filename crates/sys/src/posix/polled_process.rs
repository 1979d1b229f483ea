//! Watches a process by its pid. This is a fallback for systems without process handles, such as kernels
//! before 5.3 and containers whose runtime filters the system calls for process handles.
//!
//! After a process has exited, a new process can get the same pid, except that the pid of a child stays reserved
//! until we have waited for the child. For processes that aren't our children, this module compares start times.

use std::io;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::poll::wait_for_any;
use super::process_facts::{ProcessState, process_of};

/// Poll interval for a process.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// A process that one of our threads polls.
#[derive(Debug)]
pub(crate) struct PolledProcess {
    pid: Pid,
    identity: Identity,
    /// The read end of a pipe. The polling thread closes the write end when the process has exited.
    pub(crate) end: OwnedFd,
}

/// Distinguishes a process from a later process with the same pid.
#[derive(Debug, Clone, Copy)]
enum Identity {
    /// The process is our child.
    Child,
    /// The process started at this time, in the unit of [`Process::started`].
    Started(u64),
}

impl PolledProcess {
    /// Starts watching the process that currently has the pid `pid`.
    ///
    /// # Errors
    /// Returns `ESRCH` if the process doesn't exist, or if the system doesn't show it
    /// to us. Returns an error if our own process can't open a pipe or start a thread.
    pub(crate) fn begin(pid: Pid) -> io::Result<Self> {
        let identity = match child_has_ended(pid) {
            Ok(_) => Identity::Child,
            Err(_) => Identity::Started(process_of(pid).ok_or(Errno::SRCH)?.started),
        };
        let (end, held) = io::pipe()?;
        thread::Builder::new().name("watch".to_owned()).spawn(move || {
            // Stop polling when the pipe breaks. This happens once all its read ends are closed, which means
            // that no thread waits for the process anymore. macOS reports HUP only if the caller requests it.
            let is_dropped = || wait_for_any(&mut [PollFd::new(&held, PollFlags::HUP)], POLL_INTERVAL);
            while is_running(pid, identity) && !is_dropped().unwrap_or(true) {}
        })?;
        Ok(Self { pid, identity, end: end.into() })
    }

    /// Returns true if the process has exited, even if its parent hasn't waited for it yet.
    pub(crate) fn has_ended(&self) -> bool {
        !is_running(self.pid, self.identity)
    }
}

fn is_running(pid: Pid, identity: Identity) -> bool {
    match identity {
        Identity::Child => child_has_ended(pid) == Ok(false),
        Identity::Started(started) => process_of(pid)
            .is_some_and(|process| process.started == started && process.state != ProcessState::Ended),
    }
}

/// Returns true if a child has exited, without reaping it.
///
/// # Errors
/// Returns `ECHILD` if we have reaped the child, or if the process isn't our child.
fn child_has_ended(pid: Pid) -> Result<bool, Errno> {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    Ok(waitid(WaitId::Pid(pid), look)?.is_some())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;
    use crate::wait_readable;

    #[test]
    fn end_of_another_processs_child_is_seen() {
        let mut shell = Command::new("sh");
        let script = "cat <&3 >/dev/null & echo $!; wait";
        let mut shell = shell
            .args(["-c", &format!("exec 3<&0; {script}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let watched = PolledProcess::begin(Pid::from_raw(line.trim().parse().unwrap()).unwrap()).unwrap();
        assert!(!watched.has_ended());
        drop(shell.stdin.take());
        assert!(wait_readable(&watched.end, Duration::from_mins(1)).unwrap());
        shell.wait().unwrap();
    }

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
