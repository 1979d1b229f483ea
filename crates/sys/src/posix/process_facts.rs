//! Defines the facts about a process that the process tables of all systems contain.

use rustix::process::Pid;

use crate::host;

/// A snapshot of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    /// Pid of the parent.
    pub(crate) parent: u32,
    /// When the process started, in a unit that depends on the system. This distinguishes processes with the same pid.
    pub(crate) started: u64,
    pub(crate) state: ProcessState,
}

/// The activity of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessState {
    /// The process waits for an event, and a signal would wake it. On
    /// macOS this applies to all threads, and on Linux to the main thread.
    Asleep,
    /// The process is running, is stopped, or is in an uninterruptible wait. Also used if the system can't tell.
    Busy,
    /// The process is exiting: the kernel is releasing its memory and its files.
    Ending,
    /// The process is a zombie: it has exited, but its parent hasn't waited for it yet.
    Ended,
}

/// Returns facts about a process, as [`host::process`] does.
pub(crate) fn process_of(pid: Pid) -> Option<Process> {
    host::process(pid.as_raw_nonzero().get().cast_unsigned())
}

/// Returns true if the process is in interruptible sleep. A process that receives a signal isn't asleep until
/// it has handled the signal. Returns false if the process is stopped or doesn't exist.
#[must_use]
pub fn is_asleep(pid: u32) -> bool {
    host::process(pid).is_some_and(|process| process.state == ProcessState::Asleep)
}

/// Returns true if the process has begun to exit, or is a zombie. The kernel closes an exiting
/// process's sockets before it reports the exit. Returns false if the process doesn't exist.
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
