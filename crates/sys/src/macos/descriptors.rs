//! Closes all descriptors from a given number on.

use libc::proc_fdinfo;

use super::process_table::fill;
use super::structures::KernelStructure;
use crate::posix::open_file_limit::OPEN_MAX;

/// Maximum number of descriptors that one call lists.
const AT_ONCE: usize = 256;

/// Closes each descriptor of the calling process whose number is at least `first`. Allocates nothing, so a process may
/// call this between fork and exec.
#[allow(unsafe_code)]
pub(crate) fn close_from(first: u32) {
    let first = first.cast_signed();
    let close = |descriptor: i32| {
        // SAFETY: the caller no longer uses these descriptors.
        unsafe { libc::close(descriptor) };
    };
    let mut open = [proc_fdinfo::zeroed(); AT_ONCE];
    loop {
        let count = fill(std::process::id(), libc::PROC_PIDLISTFDS, &mut open);
        if count == 0 {
            // The kernel doesn't list any descriptors, so close all possible ones.
            return (first..OPEN_MAX.into()).for_each(close);
        }
        open[..count].iter().map(|file| file.proc_fd).filter(|open| *open >= first).for_each(close);
        if count < AT_ONCE {
            return;
        }
    }
}
