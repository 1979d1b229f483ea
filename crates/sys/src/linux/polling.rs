//! Waits for a dying process to release its resources. The kernel sends no notification for this, so the wait
//! has to poll.

use std::io;
use std::time::{Duration, Instant};

/// How long to wait for a killed process to disappear on a busy machine, and how long to pause between
/// checks.
const TIMEOUT_AND_PAUSE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_millis(1));

/// Polls `condition` until it holds. Returns false if it doesn't hold before the timeout.
pub(crate) fn poll_until(mut condition: impl FnMut() -> io::Result<bool>) -> io::Result<bool> {
    let (patience, pause) = TIMEOUT_AND_PAUSE;
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
