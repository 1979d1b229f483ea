//! System V shared memory: the one thing that a killed process leaves outside the file system.

use std::fs;
use std::io;

use rustix::process::{Pid, test_kill_process};

/// Removes the segments that process `creator` made, if it is gone and nobody is attached to them any more; returns
/// how many.
///
/// Source: proc(5), `/proc/sysvipc/shm`; a system without that file has no such segments.
pub fn remove_segments(creator: Pid) -> io::Result<usize> {
    if test_kill_process(creator) != Err(rustix::io::Errno::SRCH) {
        return Ok(0);
    }
    let table = match fs::read_to_string("/proc/sysvipc/shm") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        other => other?,
    };
    let mut removed = 0;
    for line in table.lines().skip(1) {
        let fields: Vec<i64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
        let &[_key, id, _mode, _size, made_by, _last, attached, ..] = fields.as_slice() else { continue };
        if made_by == i64::from(creator.as_raw_nonzero().get()) && attached == 0 {
            removed += usize::from(remove(i32::try_from(id).map_err(io::Error::other)?)?);
        }
    }
    Ok(removed)
}

/// Removes one segment; false if somebody else was quicker or it belongs to another user.
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
    fn a_segment_goes_only_once_its_creator_is_gone() {
        let ours = rustix::process::getpid();
        // SAFETY: shmget(2) has no memory preconditions.
        let id = unsafe { libc::shmget(libc::IPC_PRIVATE, 4096, libc::IPC_CREAT | 0o600) };
        assert!(id >= 0);
        assert_eq!(remove_segments(ours).unwrap(), 0);
        assert!(remove(id).unwrap());
        assert!(!remove(id).unwrap());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = Pid::from_child(&child);
        child.wait().unwrap();
        assert_eq!(remove_segments(gone).unwrap(), 0);
    }
}
