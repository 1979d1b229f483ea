//! Copies the contents of files inside the kernel.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;

use crate::refusals::{is_refused, note_refusal};

/// Copies up to `length` bytes between the current offsets of two files, inside the kernel. Returns the
/// number of copied bytes, which is less than `length` only at the end of `from`. Source: sendfile(2), which
/// copies between files since Linux 2.6.33.
pub fn transfer(from: &File, to: &File, length: u64) -> io::Result<u64> {
    let mut done = 0;
    while done < length {
        let chunk = usize::try_from(length - done).unwrap_or(usize::MAX).min(0x7fff_f000);
        match rustix::fs::sendfile(to.as_fd(), from.as_fd(), None, chunk) {
            Ok(0) => break,
            Ok(count) => done += count as u64,
            Err(Errno::INTR) => {}
            // Some file systems (e.g. FUSE and the file system in gVisor) don't support this call, and
            // system call filters can refuse it. In these cases, copy the bytes through our own memory.
            Err(error) if done == 0 && (error == Errno::INVAL || is_refused(error)) => {
                if is_refused(error) {
                    note_refusal("sendfile", &error.into());
                }
                let mut limited = io::Read::take(from, length);
                return io::copy(&mut limited, &mut &*to);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done)
}
