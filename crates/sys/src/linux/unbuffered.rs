//! Defines the open(2) flag for writes that bypass the page cache.

/// The flag for `open(2)`, or `None` if the system doesn't have one.
pub(crate) const DIRECT: Option<i32> = Some(libc::O_DIRECT);
