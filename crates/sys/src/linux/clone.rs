//! Clones files, and flushes file systems to disk.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Mode, OFlags, ioctl_ficlone, openat, unlinkat};
use rustix::io::Errno;

use crate::refusals::{is_refused, note_refusal};

/// Creates the file `name` in `directory` with mode 0600 as a clone of `from`, and opens it for writing. Returns
/// `None`, without creating a file, if the file systems don't support clones. Source: `ioctl_ficlone(2)`, Linux 4.5.
///
/// # Errors
/// Returns an error if `name` exists, or if the call fails for a reason other than missing
/// support, for example because the disk is full. In that case, no new file remains.
pub(crate) fn clone_file(from: &File, directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<File>> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let to = openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?;
    let Err(error) = ioctl_ficlone(&to, from) else { return Ok(Some(to.into())) };
    unlinkat(directory, name, AtFlags::empty())?;
    match error {
        Errno::OPNOTSUPP
        | Errno::XDEV
        | Errno::INVAL
        | Errno::NOTTY
        | Errno::NOSYS
        | Errno::TXTBSY
        | Errno::PERM => Ok(None),
        error => Err(error.into()),
    }
}

/// Writes all cached data of the file system of `file` to disk. Source: syncfs(2), which reports errors since 5.8.
/// If a system call filter refuses syncfs(2), flushes all file systems with sync(2), which doesn't report errors.
pub fn sync_filesystem(file: &File) -> io::Result<()> {
    match rustix::fs::syncfs(file) {
        Err(error) if is_refused(error) => {
            note_refusal("syncfs", &error.into());
            rustix::fs::sync();
        }
        synced => synced?,
    }
    Ok(())
}
