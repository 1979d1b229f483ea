//! Placeholder for the flag of writes that bypass the page cache. POSIX has no such flag.

/// The flag of `open(2)`, or `None` if the system has none.
pub(crate) const DIRECT: Option<i32> = None;
