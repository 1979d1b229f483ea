//! Removes System V shared memory and semaphores. They aren't in the file system, and they persist if a signal kills
//! their process.

use std::io;

use rustix::process::Pid;

use super::polling::poll_until;
use super::process_facts::{ProcessState, process_of};
use crate::host;

/// A System V shared memory segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) id: i32,
    /// True while at least one process uses the segment.
    pub(crate) is_attached: bool,
}

/// Removes the segments and the semaphores that `account` owns and the process
/// `creator` created. Returns the number of removed segments. Does nothing while
/// `creator` is alive. Waits until exiting processes have detached from the segments.
///
/// # Errors
/// Returns `TimedOut` if a process is still attached after 10 s, and an error if the table of segments is unreadable
/// or a removal fails.
pub fn remove_segments(creator: Pid, account: u32) -> io::Result<usize> {
    if is_alive(creator) {
        return Ok(0);
    }
    let mut removed = 0;
    let gone = poll_until(|| {
        let segments = host::segments(creator, account)?;
        for segment in segments.iter().filter(|segment| !segment.is_attached) {
            removed += usize::from(remove(segment.id)?);
        }
        Ok(segments.iter().all(|segment| !segment.is_attached))
    })?;
    for set in host::semaphores(creator, account) {
        remove_semaphores(set);
    }
    if gone { Ok(removed) } else { Err(io::Error::new(io::ErrorKind::TimedOut, "it is in use")) }
}

/// Returns true if a process exists and is neither exiting nor a zombie. A zombie can persist forever, because process
/// 1 of a container might not reap it.
fn is_alive(process: Pid) -> bool {
    process_of(process)
        .is_some_and(|process| !matches!(process.state, ProcessState::Ending | ProcessState::Ended))
}

/// Removes one segment. Returns false if the segment no longer exists or belongs to another user.
#[allow(unsafe_code)]
fn remove(id: i32) -> io::Result<bool> {
    // SAFETY: IPC_RMID ignores the pointer.
    if unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EINVAL | libc::EIDRM | libc::EPERM) => Ok(false),
        _ => Err(error),
    }
}

/// Removes one semaphore set. Ignores errors, because another process may have removed the set in the meantime.
#[allow(unsafe_code)]
fn remove_semaphores(set: i32) {
    // SAFETY: IPC_RMID takes no fourth argument.
    unsafe { libc::semctl(set, 0, libc::IPC_RMID) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(unsafe_code)]
    fn segment_removal_spares_segments_of_live_creator() {
        let ours = rustix::process::getpid();
        // SAFETY: shmget(2) has no memory preconditions.
        let id = unsafe { libc::shmget(libc::IPC_PRIVATE, 4096, libc::IPC_CREAT | 0o600) };
        assert!(id >= 0);
        assert_eq!(remove_segments(ours, 0).unwrap(), 0);
        assert!(remove(id).unwrap());
        assert!(!remove(id).unwrap());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = Pid::from_child(&child);
        child.wait().unwrap();
        assert_eq!(remove_segments(gone, 0).unwrap(), 0);
    }

    #[test]
    fn zombie_is_not_alive() {
        let ours = rustix::process::getpid();
        assert!(is_alive(ours));
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let process = Pid::from_child(&child);
        assert!(is_alive(process));
        let handle = crate::ProcessHandle::of(&child).unwrap();
        drop(child.stdin.take());
        assert!(crate::wait_readable(&handle, std::time::Duration::from_secs(30)).unwrap());
        assert!(!is_alive(process), "it has ended, though it was not waited for");
        child.wait().unwrap();
        assert!(!is_alive(process));
    }
}
