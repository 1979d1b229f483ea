//! Waits for file descriptors, with a timeout.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Waits until `descriptor` is readable or its other end is closed. Returns false if neither happens within
/// `limit`.
pub fn wait_readable(descriptor: impl AsFd, limit: Duration) -> io::Result<bool> {
    wait_for_any(&mut [PollFd::new(&descriptor, PollFlags::IN)], limit)
}

/// Waits for an event on any of `descriptors`. Returns false if `limit` passes without an event. Signals
/// don't interrupt the wait.
pub(crate) fn wait_for_any(descriptors: &mut [PollFd<'_>], limit: Duration) -> io::Result<bool> {
    let end = Instant::now() + limit;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(descriptors, Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => {}
            ready => return Ok(ready? > 0),
        }
    }
}
