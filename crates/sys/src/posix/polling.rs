//! Waits until an exiting process has released its resources. The
//! kernel doesn't send a notification for this, so this module polls.

use std::io;
use std::time::{Duration, Instant};

/// The timeout and the poll interval. On a busy machine, a killed process can take seconds to disappear.
const TIMEOUT_AND_PAUSE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_millis(1));

/// Polls `condition` until it holds. Returns false if it still doesn't hold after the timeout.
pub(crate) fn poll_until(mut condition: impl FnMut() -> io::Result<bool>) -> io::Result<bool> {
    let (timeout, pause) = TIMEOUT_AND_PAUSE;
    let end = Instant::now() + timeout;
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
