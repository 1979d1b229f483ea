//! Waiting for what a dying process gives up: the kernel does not tell of it.

use std::io;
use std::time::{Duration, Instant};

/// How long a killed process may take to be gone, on a machine that is very busy, and how often we look.
const DYING: (Duration, Duration) = (Duration::from_secs(10), Duration::from_millis(1));

/// Looks for `condition` until it holds; false if a dying process would have been gone by now.
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
