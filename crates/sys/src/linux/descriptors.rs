//! Closes all descriptors from a given number on.

/// Closes each descriptor of the calling process whose number is at least `first`. Source: `close_range(2)`, Linux 5.9.
/// Allocates nothing, so a process may call this between fork and exec.
#[allow(unsafe_code)]
pub(crate) fn close_from(first: u32) {
    // SAFETY: the caller no longer uses these descriptors.
    unsafe {
        if libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) != 0 {
            let most = libc::sysconf(libc::_SC_OPEN_MAX);
            (first.cast_signed()..i32::try_from(most).unwrap_or(i32::MAX)).for_each(|descriptor| {
                libc::close(descriptor);
            });
        }
    }
}
