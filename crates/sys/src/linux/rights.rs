//! What we may do with a path.

use std::io;
use std::path::Path;

use rustix::fs::{Access, access};

/// Makes sure that we may write in a directory, as the file system and the mount say.
pub fn expect_writable(path: &Path) -> io::Result<()> {
    Ok(access(path, Access::WRITE_OK)?)
}

/// The same, and that we may enter it.
pub fn expect_usable(path: &Path) -> io::Result<()> {
    Ok(access(path, Access::WRITE_OK | Access::EXEC_OK)?)
}

/// Whether we may enter a directory, and pass through all above it: by any of our groups, and by access control lists.
#[must_use]
pub fn may_enter(path: &Path) -> bool {
    access(path, Access::EXEC_OK).is_ok()
}
