//! Closes descriptors.

use libc::proc_fdinfo;

use super::process_table::fill;
use super::structures::KernelStructure;

/// Number of descriptors that the kernel lists at once.
const AT_ONCE: usize = 256;
/// Number of descriptors to close where the kernel lists none. Source: `OPEN_MAX` in `sys/syslimits.h`.
const MOST: i32 = 10_240;

/// Closes all descriptors of the calling process from `first` on. Allocates nothing, so it may be called between fork
/// and exec.
#[allow(unsafe_code)]
pub(crate) fn close_from(first: u32) {
    let first = first.cast_signed();
    let close = |descriptor: i32| {
        // SAFETY: the caller uses no descriptor from `first` on any more.
        unsafe { libc::close(descriptor) };
    };
    let mut open = [proc_fdinfo::zeroed(); AT_ONCE];
    loop {
        let count = fill(std::process::id(), libc::PROC_PIDLISTFDS, &mut open);
        if count == 0 {
            return (first..MOST).for_each(close);
        }
        open[..count].iter().map(|file| file.proc_fd).filter(|open| *open >= first).for_each(close);
        if count < AT_ONCE {
            return;
        }
    }
}
