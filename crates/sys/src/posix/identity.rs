//! Returns facts about this process (its user, group and host, and the signals that it ignores), and random bytes.

use std::io;

/// Size of the buffer for the host name with its zero byte, in bytes. Host names have up to 64 bytes on Linux and 255
/// on macOS.
const MAX_HOST_NAME_LENGTH: usize = 256;

/// Returns the effective uid.
#[must_use]
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns the effective gid.
#[must_use]
pub fn group() -> u32 {
    rustix::process::getegid().as_raw()
}

/// Returns true if the effective user is root.
#[must_use]
pub fn is_root() -> bool {
    user() == 0
}

/// Returns the host name, or `None` if the system doesn't have one or if it isn't UTF-8. Source: gethostname(2).
#[must_use]
#[allow(unsafe_code)]
pub fn host_name() -> Option<String> {
    let mut name = vec![0_u8; MAX_HOST_NAME_LENGTH];
    // SAFETY: the call writes at most as many bytes as the buffer has.
    let refused = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len()) } != 0;
    name.truncate(name.iter().position(|byte| *byte == 0)?);
    String::from_utf8(name).ok().filter(|name| !refused && !name.is_empty())
}

/// Returns true if this process ignores `signal`, for example because it was started under `nohup` or as a
/// background job of a shell. Source: sigaction(2).
#[must_use]
#[allow(unsafe_code)]
pub fn is_ignored(signal: i32) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action, the call only fills in the current one. It is read only if the call succeeded.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Fills `bytes` from the kernel's random number generator. Source: getentropy(3), at most 256 bytes a call.
#[allow(unsafe_code)]
pub fn fill_random(bytes: &mut [u8]) -> io::Result<()> {
    for part in bytes.chunks_mut(256) {
        // SAFETY: the call writes exactly as many bytes as the part has.
        if unsafe { libc::getentropy(part.as_mut_ptr().cast(), part.len()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signal_is_detected() {
        // The Rust runtime ignores SIGPIPE.
        assert!(is_ignored(libc::SIGPIPE));
        assert!(!is_ignored(libc::SIGALRM));
    }

    #[test]
    fn random_bytes_fill_more_than_one_call() {
        let mut bytes = [0; 600];
        fill_random(&mut bytes).unwrap();
        assert!(bytes.chunks(100).all(|part| part.iter().any(|byte| *byte != 0)));
    }
}
