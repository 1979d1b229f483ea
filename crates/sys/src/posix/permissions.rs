//! Checks which files and directories this process can access.

use std::io;
use std::path::Path;

use rustix::fs::{Access, access};

/// Returns an error if we can't write to the directory `path`, for example because of its mode or a read-only
/// mount.
pub fn expect_writable(path: &Path) -> io::Result<()> {
    Ok(access(path, Access::WRITE_OK)?)
}

/// Returns an error if we can't write to or enter the directory `path`.
pub fn expect_usable(path: &Path) -> io::Result<()> {
    Ok(access(path, Access::WRITE_OK | Access::EXEC_OK)?)
}

/// Returns true if we can enter a directory and every directory above it, given all our groups and access
/// control lists.
#[must_use]
pub fn may_enter(path: &Path) -> bool {
    access(path, Access::EXEC_OK).is_ok()
}
