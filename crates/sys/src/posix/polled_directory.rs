//! Looks at a directory again and again, on systems without notifications.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::poll::wait_for_any;

/// The shortest and the longest pause.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);
/// A pause is at most this part of the time that has passed, so that a caller waits little longer than with
/// notifications.
const PART: u32 = 16;

/// Ends each wait after a short pause, as if a file had changed.
#[derive(Debug)]
pub(crate) struct PolledDirectory {
    since: Instant,
}

impl PolledDirectory {
    pub(crate) fn begin() -> Self {
        Self { since: Instant::now() }
    }

    /// Waits for a short pause, or for all writers of the pipe `alive` to close it, but at most for `timeout`.
    /// Returns true if the pipe was closed.
    pub(crate) fn wait(&self, alive: impl AsFd, timeout: Duration) -> io::Result<bool> {
        let pause = (self.since.elapsed() / PART).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        let mut waited = [PollFd::new(&alive, PollFlags::IN)];
        wait_for_any(&mut waited, pause.min(timeout))?;
        Ok(waited[0].revents().contains(PollFlags::HUP))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_returns_before_the_timeout() {
        let watch = PolledDirectory::begin();
        let (alive, writer) = io::pipe().unwrap();
        assert!(!watch.wait(&alive, Duration::from_hours(1)).unwrap());
        drop(writer);
        assert!(watch.wait(&alive, Duration::from_hours(1)).unwrap());
    }
}
