//! Moving the bytes of a file: by reference where the file system can, else inside the kernel.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;

/// Makes `to`, which must be empty, share the blocks of `from`. Source: `ioctl_ficlone(2)`, Linux 4.5.
///
/// Returns false, with `to` untouched, where the file systems cannot do that.
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

/// Copies `length` bytes from the current offset of `from` to the current offset of `to` without passing through this
/// process, and returns how many there were before the end of `from`. Source: sendfile(2), file to file since 2.6.33.
pub fn transfer(from: &File, to: &File, length: u64) -> io::Result<u64> {
    let mut done = 0;
    while done < length {
        let chunk = usize::try_from(length - done).unwrap_or(usize::MAX).min(0x7fff_f000);
        match rustix::fs::sendfile(to.as_fd(), from.as_fd(), None, chunk) {
            Ok(0) => break,
            Ok(count) => done += count as u64,
            Err(Errno::INTR) => {}
            // Some file systems (FUSE, gVisor's) do not splice: through our memory then.
            Err(Errno::INVAL | Errno::NOSYS) if done == 0 => {
                let mut limited = io::Read::take(from, length);
                return io::copy(&mut limited, &mut &*to);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done)
}

/// Makes everything written to the file system of `file` durable. Source: syncfs(2), which reports errors since 5.8.
pub fn sync_filesystem(file: &File) -> io::Result<()> {
    Ok(rustix::fs::syncfs(file)?)
}
