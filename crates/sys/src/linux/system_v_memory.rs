//! Removes System V shared memory. Its segments aren't in the file system, and they persist after their
//! process is killed.

use std::fs;
use std::io;

use rustix::process::Pid;

use super::polling::poll_until;

/// Removes the segments owned by `account` and created by the process `creator`, and returns how many were
/// removed. Does nothing while `creator` is alive. Waits until exiting processes have detached from the
/// segments. Reading an exiting process's `/proc/PID` delays the detach.
///
/// Source: proc(5), `/proc/sysvipc/shm`. A system without that file has no such segments.
///
/// # Errors
/// Returns an error if a process is still attached after the timeout.
pub fn remove_segments(creator: Pid, account: u32) -> io::Result<usize> {
    if is_alive(creator) {
        return Ok(0);
    }
    let mut removed = 0;
    let gone = poll_until(|| {
        let segments = segments_of(creator, account)?;
        for &(id, _) in segments.iter().filter(|&&(_, attached)| attached == 0) {
            removed += usize::from(remove(id)?);
        }
        Ok(segments.iter().all(|&(_, attached)| attached == 0))
    })?;
    if gone { Ok(removed) } else { Err(io::Error::new(io::ErrorKind::TimedOut, "it is in use")) }
}

/// Returns the id and attach count of each segment owned by `account` and created by the process `creator`.
fn segments_of(creator: Pid, account: u32) -> io::Result<Vec<(i32, i64)>> {
    let table = match fs::read_to_string("/proc/sysvipc/shm") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let segment = |line: &str| {
        let fields: Vec<i64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
        let &[_key, id, _mode, _size, made_by, _last, attached, owner, ..] = fields.as_slice() else {
            return None;
        };
        let ours = made_by == i64::from(creator.as_raw_nonzero().get()) && owner == i64::from(account);
        Some((i32::try_from(id).ok().filter(|_| ours)?, attached))
    };
    Ok(table.lines().skip(1).filter_map(segment).collect())
}

/// Returns true if a process exists and is neither exiting nor a zombie. A zombie can persist forever,
/// because the first process in a container might not reap it. Source: proc(5), fields 3 and 9 of
/// `/proc/PID/stat`; `PF_EXITING` in Linux's `sched.h`.
fn is_alive(process: Pid) -> bool {
    const EXITING: u64 = 0x4;
    let Ok(stat) = fs::read_to_string(format!("/proc/{process}/stat")) else { return false };
    // The program's name is in parentheses and can contain any character.
    let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let dead = matches!(fields.next(), Some("Z" | "X"));
    let flags = fields.nth(5).and_then(|flags| flags.parse::<u64>().ok()).unwrap_or(0);
    !dead && flags & EXITING == 0
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
        let handle = rustix::process::pidfd_open(process, rustix::process::PidfdFlags::empty()).unwrap();
        drop(child.stdin.take());
        assert!(crate::wait_readable(&handle, std::time::Duration::from_secs(30)).unwrap());
        assert!(!is_alive(process), "it has ended, though it was not waited for");
        child.wait().unwrap();
        assert!(!is_alive(process));
    }
}
