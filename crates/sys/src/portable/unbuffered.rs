//! Stands in for the flag for writes that bypass the page cache, which POSIX doesn't have.

/// The flag for `open(2)`, or `None` if the system doesn't have one.
pub(crate) const DIRECT: Option<i32> = None;
