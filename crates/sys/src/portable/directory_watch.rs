//! Watches a directory by polling, because POSIX doesn't have notifications.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use crate::Directory;
use crate::posix::polled_directory::PolledDirectory;

/// A watch that ends each wait after a short poll interval, as if a file had changed.
#[derive(Debug)]
pub struct DirectoryWatch(PolledDirectory);

impl DirectoryWatch {
    /// Watches the files in `directory`, but not in its subdirectories.
    #[must_use]
    pub fn new(_directory: &Directory) -> Self {
        Self(PolledDirectory::begin())
    }

    /// Waits until a short poll interval is over or all writers of the pipe `alive`
    /// have closed it, but at most for `timeout`. Returns true if the pipe was closed.
    pub fn wait(&self, alive: impl AsFd, timeout: Duration) -> io::Result<bool> {
        self.0.wait(alive, timeout)
    }

    /// Does nothing. On Linux, this closes the queue of events.
    pub fn end(self) {}

    /// Does nothing, because this watch doesn't have a queue of events.
    /// On Linux, callers must examine the files only after this call.
    #[allow(clippy::unnecessary_wraps, reason = "Linux has a queue of events, which may be unreadable")]
    pub fn clear(&self) -> io::Result<()> {
        Ok(())
    }
}
