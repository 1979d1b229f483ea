//! Looks at a directory again and again, because POSIX has no notifications.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use crate::Directory;
use crate::posix::poll::wait_for_any;

/// The shortest and the longest pause.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);
/// A pause is at most this part of the time that has passed, so that a caller waits little longer than with
/// notifications.
const PART: u32 = 16;

/// A watch that ends each wait after a short pause, as if a file had changed.
#[derive(Debug)]
pub struct DirectoryWatch {
    since: Instant,
}

impl DirectoryWatch {
    /// Watches the files in `directory`, but not in its subdirectories.
    #[expect(clippy::unnecessary_wraps, reason = "Linux asks the kernel, which may refuse")]
    pub fn new(_directory: &Directory) -> io::Result<Self> {
        Ok(Self { since: Instant::now() })
    }

    /// Waits for a short pause, or for all writers of the pipe `alive` to close it, but at most for `timeout`.
    /// Returns true if the pipe was closed.
    pub fn wait(&self, alive: impl AsFd, timeout: Duration) -> io::Result<bool> {
        let pause = (self.since.elapsed() / PART).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        let mut waited = [PollFd::new(&alive, PollFlags::IN)];
        wait_for_any(&mut waited, pause.min(timeout))?;
        Ok(waited[0].revents().contains(PollFlags::HUP))
    }

    /// Ends the watch.
    pub fn end(self) {}

    /// Does nothing, because there are no events. Examine the files only after this call, as with notifications.
    #[expect(clippy::unnecessary_wraps, reason = "Linux asks the kernel, which may refuse")]
    pub fn clear(&self) -> io::Result<()> {
        Ok(())
    }
}
