//! Polling for resources that a dying process releases, because the kernel sends no notification.

use std::io;
use std::time::{Duration, Instant};

/// Timeout for a killed process to disappear on a busy machine, and interval between checks.
const DYING: (Duration, Duration) = (Duration::from_secs(10), Duration::from_millis(1));

/// Polls `condition` until it holds. Returns false after the timeout for a dying process.
pub(crate) fn wait_until(mut condition: impl FnMut() -> io::Result<bool>) -> io::Result<bool> {
    let (patience, pause) = DYING;
    let end = Instant::now() + patience;
    loop {
        if condition()? {
            return Ok(true);
        }
        if Instant::now() >= end {
            return Ok(false);
        }
        std::thread::sleep(pause);
    }
}
