//! Stands for the flag for writes that bypass the page cache, which POSIX doesn't have.

/// The flag of `open(2)`, or `None` if the system has none.
pub(crate) const DIRECT: Option<i32> = None;
