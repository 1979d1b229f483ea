//! Access rights of this process.

use std::io;
use std::path::Path;

use rustix::fs::{Access, access};

/// Fails if we may not write in a directory, according to its mode or the mount.
pub fn expect_writable(path: &Path) -> io::Result<()> {
    Ok(access(path, Access::WRITE_OK)?)
}

/// Fails if we may not write in a directory or may not enter it.
pub fn expect_usable(path: &Path) -> io::Result<()> {
    Ok(access(path, Access::WRITE_OK | Access::EXEC_OK)?)
}

/// Whether we may enter a directory and all directories above it. Considers all our groups and access control lists.
#[must_use]
pub fn may_enter(path: &Path) -> bool {
    access(path, Access::EXEC_OK).is_ok()
}
