//! Flag of open(2) for writes that bypass the page cache.

/// The flag of `open(2)`, or `None` if the system has none.
pub(crate) const DIRECT: Option<i32> = Some(libc::O_DIRECT);
