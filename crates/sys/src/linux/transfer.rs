//! Copies the contents of files by reflink or inside the kernel, and flushes file systems to disk.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;

/// Makes the empty file `to` share the blocks of `from`. Source: `ioctl_ficlone(2)`, Linux 4.5.
///
/// Returns false and leaves `to` unchanged if the file systems don't support reflinks.
///
/// # Errors
/// Returns an error if the call fails for any reason but missing support, for example because the disk is
/// full.
pub fn reflink(from: &File, to: &File) -> io::Result<bool> {
    match rustix::fs::ioctl_ficlone(to, from) {
        Ok(()) => Ok(true),
        Err(
            Errno::OPNOTSUPP
            | Errno::XDEV
            | Errno::INVAL
            | Errno::NOTTY
            | Errno::NOSYS
            | Errno::TXTBSY
            | Errno::PERM,
        ) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Copies up to `length` bytes between the current offsets of two files, inside the kernel. Returns the
/// number of bytes copied, which is less than `length` only at the end of `from`. Source: sendfile(2), file
/// to file since 2.6.33.
pub fn transfer(from: &File, to: &File, length: u64) -> io::Result<u64> {
    let mut done = 0;
    while done < length {
        let chunk = usize::try_from(length - done).unwrap_or(usize::MAX).min(0x7fff_f000);
        match rustix::fs::sendfile(to.as_fd(), from.as_fd(), None, chunk) {
            Ok(0) => break,
            Ok(count) => done += count as u64,
            Err(Errno::INTR) => {}
            // Some file systems (e.g. FUSE and the one in gVisor) don't support this call, so copy the bytes
            // through our own memory.
            Err(Errno::INVAL | Errno::NOSYS) if done == 0 => {
                let mut limited = io::Read::take(from, length);
                return io::copy(&mut limited, &mut &*to);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done)
}

/// Flushes all data written to the file system of `file` to disk. Source: syncfs(2), which reports errors
/// since 5.8.
pub fn sync_filesystem(file: &File) -> io::Result<()> {
    Ok(rustix::fs::syncfs(file)?)
}
