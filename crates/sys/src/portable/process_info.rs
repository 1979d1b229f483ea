//! Reads information about other processes by their pids.

use std::io;
use std::time::Duration;

use crate::host;

/// Returns the command line, which is not known: an empty list.
#[must_use]
pub fn command_line(_pid: u32) -> Vec<u8> {
    Vec::new()
}

/// Returns the pids of the process's children.
#[must_use]
pub fn children_of(pid: u32) -> Vec<u32> {
    let all = host::pids().unwrap_or_default().into_iter();
    all.filter(|child| host::process(*child).is_some_and(|process| process.parent == pid)).collect()
}

/// Returns the peak resident memory, in bytes.
///
/// # Errors
/// Returns an error of the kind [`io::ErrorKind::Unsupported`], because this is not known.
pub fn peak_memory(_pid: u32) -> io::Result<u64> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns the current resident memory, in bytes.
///
/// # Errors
/// Returns an error of the kind [`io::ErrorKind::Unsupported`], because this is not known.
pub fn resident_memory(_pid: u32) -> io::Result<u64> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns the processor time of all threads called `threads`, or of all threads if `threads` is `None`.
///
/// # Errors
/// Returns an error of the kind [`io::ErrorKind::Unsupported`], because this is not known.
pub fn processor_time(_pid: u32, _threads: Option<&str>) -> io::Result<Duration> {
    Err(io::ErrorKind::Unsupported.into())
}
