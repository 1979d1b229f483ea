//! System V shared memory: the one thing that a killed process leaves outside the file system.

use std::io;

/// Removes the segment `id`, if process `creator` made it and nobody is attached to it any more.
///
/// Returns whether it was removed. A segment that does not exist, was made by somebody else or is in use is left.
/// Source: shmctl(2).
#[allow(unsafe_code)]
pub fn remove_segment(id: i32, creator: i32) -> io::Result<bool> {
    let mut status = std::mem::MaybeUninit::<libc::shmid_ds>::zeroed();
    // SAFETY: IPC_STAT writes one shmid_ds to the pointer, which points to room for one.
    if unsafe { libc::shmctl(id, libc::IPC_STAT, status.as_mut_ptr()) } != 0 {
        return unless_gone(io::Error::last_os_error());
    }
    // SAFETY: all-zero is a valid shmid_ds, and the call above filled it.
    let status = unsafe { status.assume_init() };
    if status.shm_cpid != creator || status.shm_nattch != 0 {
        return Ok(false);
    }
    // SAFETY: IPC_RMID ignores the pointer.
    if unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) } != 0 {
        return unless_gone(io::Error::last_os_error());
    }
    Ok(true)
}

fn unless_gone(error: io::Error) -> io::Result<bool> {
    match error.raw_os_error() {
        Some(libc::EINVAL | libc::EIDRM) => Ok(false),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(unsafe_code, clippy::cast_possible_wrap)]
    fn only_the_creators_own_segment_is_removed() {
        // SAFETY: shmget(2) has no memory preconditions.
        let id = unsafe { libc::shmget(libc::IPC_PRIVATE, 4096, libc::IPC_CREAT | 0o600) };
        assert!(id >= 0);
        let us = std::process::id() as i32;
        assert!(!remove_segment(id, us + 1).unwrap());
        assert!(remove_segment(id, us).unwrap());
        assert!(!remove_segment(id, us).unwrap());
    }
}
