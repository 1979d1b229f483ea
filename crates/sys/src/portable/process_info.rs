//! Finds the children of a process. Stands in for facts about processes that POSIX lacks.

use std::io;
use std::time::Duration;

use crate::host;

/// Returns an empty list in place of the command line.
#[must_use]
pub fn command_line(_pid: u32) -> Vec<u8> {
    Vec::new()
}

/// Returns the pids of the process's children that the system shows to us. Returns an empty list if the process table
/// can't be read.
#[must_use]
pub fn children_of(pid: u32) -> Vec<u32> {
    let all = host::pids().unwrap_or_default().into_iter();
    all.filter(|child| host::process(*child).is_some_and(|process| process.parent == pid)).collect()
}

/// Returns an error in place of the peak resident memory in bytes.
///
/// # Errors
/// Always returns [`io::ErrorKind::Unsupported`].
pub fn peak_memory(_pid: u32) -> io::Result<u64> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns an error in place of the current resident memory in bytes.
///
/// # Errors
/// Always returns [`io::ErrorKind::Unsupported`].
pub fn resident_memory(_pid: u32) -> io::Result<u64> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns an error in place of the processor time of a process's threads.
///
/// # Errors
/// Always returns [`io::ErrorKind::Unsupported`].
pub fn processor_time(_pid: u32, _threads: Option<&str>) -> io::Result<Duration> {
    Err(io::ErrorKind::Unsupported.into())
}
