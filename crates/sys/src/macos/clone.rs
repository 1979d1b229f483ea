//! Clones files, and flushes volumes to disk.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::{AtFlags, CloneFlags, Mode, OFlags, fchmod, fclonefileat, openat, unlinkat};
use rustix::io::Errno;

use super::structures::{SYNC_VOLUME_FULLSYNC, SYNC_VOLUME_WAIT};

/// Creates the file `name` in `directory` with mode 0600 as a clone of `from`, and opens it for writing. Returns
/// `None`, without creating a file, if the file system doesn't support clones. Source: clonefile(2), macOS 10.12.
///
/// # Errors
/// Returns an error if `name` exists, or if the call fails for a reason
/// other than missing support. In that case, no new file remains.
pub(crate) fn clone_file(from: &File, directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<File>> {
    match fclonefileat(from, directory, name, CloneFlags::NOFOLLOW | CloneFlags::NOOWNERCOPY) {
        Ok(()) => {}
        // Only APFS supports clones, and only within a volume.
        Err(Errno::NOTSUP | Errno::OPNOTSUPP | Errno::XDEV | Errno::INVAL | Errno::NOSYS) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let opened = open_private(directory, name);
    if opened.is_err() {
        unlinkat(directory, name, AtFlags::empty())?;
    }
    opened.map(Some)
}

/// Gives a clone the mode 0600 and opens it for writing. A new clone has the mode of its source, which may forbid
/// writing.
fn open_private(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<File> {
    let reading =
        openat(directory, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    fchmod(&reading, Mode::RUSR | Mode::WUSR)?;
    let writing = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(directory, name, writing, Mode::empty())?.into())
}

/// Writes all cached data of the volume of `file` to disk, and flushes the disk's own cache. Source: `fsync_volume_np`
/// in `unistd.h`, macOS 10.8.
#[allow(unsafe_code)]
pub fn sync_filesystem(file: &File) -> io::Result<()> {
    unsafe extern "C" {
        fn fsync_volume_np(descriptor: i32, flags: i32) -> i32;
    }
    // SAFETY: the call takes no pointers.
    match unsafe { fsync_volume_np(file.as_raw_fd(), SYNC_VOLUME_FULLSYNC | SYNC_VOLUME_WAIT) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
