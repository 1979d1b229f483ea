//! Looks at a directory again and again, because POSIX has no notifications.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use crate::Directory;
use crate::posix::polled_directory::PolledDirectory;

/// A watch that ends each wait after a short pause, as if a file had changed.
#[derive(Debug)]
pub struct DirectoryWatch(PolledDirectory);

impl DirectoryWatch {
    /// Watches the files in `directory`, but not in its subdirectories.
    #[must_use]
    pub fn new(_directory: &Directory) -> Self {
        Self(PolledDirectory::begin())
    }

    /// Waits for a short pause, or for all writers of the pipe `alive` to close it, but at most for `timeout`.
    /// Returns true if the pipe was closed.
    pub fn wait(&self, alive: impl AsFd, timeout: Duration) -> io::Result<bool> {
        self.0.wait(alive, timeout)
    }

    /// Ends the watch.
    pub fn end(self) {}

    /// Does nothing, because there are no events. Examine the files only after this call, as with notifications.
    #[allow(clippy::unnecessary_wraps, reason = "Linux has a queue of events, which may be unreadable")]
    pub fn clear(&self) -> io::Result<()> {
        Ok(())
    }
}
