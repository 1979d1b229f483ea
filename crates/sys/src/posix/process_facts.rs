//! Facts about other processes, as the process tables of all systems have them.

use std::path::PathBuf;

use crate::host;

/// A process at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    /// Pid of the parent.
    pub(crate) parent: u32,
    /// When the process began, in a unit of the system's own. Two processes that had the same pid differ in this.
    pub(crate) started: u64,
    pub(crate) state: ProcessState,
}

/// The activity of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessState {
    /// All its threads wait for an event, and a signal would wake them.
    Asleep,
    /// It runs, is stopped, or waits without being disturbed by signals. Also the answer if the system doesn't
    /// know.
    Busy,
    /// It exits: the kernel is releasing its memory and its files.
    Ending,
    /// It has exited, and its parent has not waited for it yet.
    Ended,
}

/// Returns the process's executable, or `None` if the process or the file no longer exists.
#[must_use]
pub fn executable(pid: u32) -> Option<PathBuf> {
    host::executable(pid)
}

/// Returns true if the process is in interruptible sleep. A process that receives a signal isn't asleep until
/// it has handled the signal. Returns false if the process is stopped or doesn't exist.
#[must_use]
pub fn is_asleep(pid: u32) -> bool {
    host::process(pid).is_some_and(|process| process.state == ProcessState::Asleep)
}

/// Returns true if the process has begun to exit but its parent hasn't been notified yet. The kernel closes
/// an exiting process's sockets before it reports the exit. Returns false if the process doesn't exist.
#[must_use]
pub fn is_ending(pid: u32) -> bool {
    let state = host::process(pid).map(|process| process.state);
    matches!(state, Some(ProcessState::Ending | ProcessState::Ended))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::{Signal, signal};

    #[test]
    fn process_is_ending_until_its_parent_waits() {
        let mut cat = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert!(!is_ending(cat.id()));
        drop(cat.stdin.take());
        while !is_ending(cat.id()) {
            std::thread::yield_now();
        }
        assert!(cat.wait().unwrap().success());
        assert!(!is_ending(cat.id()));
    }

    #[test]
    fn process_is_asleep_until_signalled() {
        let mut cat = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        while !is_asleep(cat.id()) {
            std::thread::yield_now();
        }
        signal(&cat, Signal::STOP).unwrap();
        assert!(!is_asleep(cat.id()));
        signal(&cat, Signal::TERM).unwrap();
        assert!(!is_asleep(cat.id()));
        signal(&cat, Signal::CONT).unwrap();
        cat.wait().unwrap();
        assert!(!is_asleep(cat.id()));
    }
}
