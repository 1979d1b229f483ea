//! Checks which files and directories this process can access.

use std::io;
use std::path::Path;

use rustix::fs::{Access, access};

/// Returns an error if we can't write to the directory `path`, for example because of its mode or because the
/// mount is read-only.
pub fn expect_writable(path: &Path) -> io::Result<()> {
    Ok(access(path, Access::WRITE_OK)?)
}

/// Returns an error if we can't write to the directory `path`, or can't enter it.
pub fn expect_usable(path: &Path) -> io::Result<()> {
    Ok(access(path, Access::WRITE_OK | Access::EXEC_OK)?)
}

/// Whether we can enter a directory and every directory above it. Takes into account all our groups and
/// access control lists.
#[must_use]
pub fn may_enter(path: &Path) -> bool {
    access(path, Access::EXEC_OK).is_ok()
}
