//! Stands in for the available memory, because POSIX doesn't have a call for it.

use std::io;
use std::path::Path;

/// Returns an error in place of the number of bytes that we can use without swapping.
///
/// # Errors
/// Always returns [`io::ErrorKind::Unsupported`].
pub fn available_memory(_root: &Path) -> io::Result<u64> {
    Err(io::ErrorKind::Unsupported.into())
}
