//! Determines how much memory this process and its children can still use, which POSIX does not tell.

use std::io;
use std::path::Path;

/// Returns how many bytes of memory we can use without swapping.
///
/// # Errors
/// Returns an error of the kind [`io::ErrorKind::Unsupported`], because this is not known.
pub fn available_memory(_root: &Path) -> io::Result<u64> {
    Err(io::ErrorKind::Unsupported.into())
}
