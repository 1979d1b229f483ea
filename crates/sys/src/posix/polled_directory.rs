//! Replaces directory notifications on systems that lack or refuse them.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::poll::wait_for_any;

/// Minimum poll interval.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
/// Maximum poll interval.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);
/// Between these bounds, the poll interval is one `PART`th of the time since
/// [`PolledDirectory::begin`], so a caller waits only a little longer than with notifications.
const PART: u32 = 16;

/// A watch that doesn't read the directory: each wait ends after the poll interval, as if a file had changed.
#[derive(Debug)]
pub(crate) struct PolledDirectory {
    since: Instant,
}

impl PolledDirectory {
    pub(crate) fn begin() -> Self {
        Self { since: Instant::now() }
    }

    /// Waits until the poll interval is over or all writers of the pipe `alive` have
    /// closed it, but at most for `timeout`. Returns true if the pipe was closed.
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
