//! Waking up when somebody has written a file.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;

use super::directory::Directory;

/// Becomes readable when a file in one directory was written and closed, or appeared by a rename.
#[derive(Debug)]
pub struct Watch(OwnedFd);

impl Watch {
    /// Watches the files in `directory`, not those further down. Source: inotify(7).
    pub fn new(directory: &Directory) -> io::Result<Self> {
        let queue = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        inotify::add_watch(
            &queue,
            format!("/proc/self/fd/{}", directory.as_fd().as_raw_fd()),
            inotify::WatchFlags::CLOSE_WRITE | inotify::WatchFlags::MOVED_TO,
        )?;
        Ok(Self(queue))
    }

    /// Waits until there is something to look at, or `alive` is closed by all who have its other end, or for `patience`.
    /// Returns whether that was closed.
    pub fn wait(&self, alive: impl AsFd, patience: Duration) -> io::Result<bool> {
        let end = Instant::now() + patience;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
            let mut waited = [PollFd::new(&self.0, PollFlags::IN), PollFd::new(&alive, PollFlags::IN)];
            match poll(&mut waited, Some(&timeout)) {
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok(_) => return Ok(waited[1].revents().contains(PollFlags::HUP)),
            }
        }
    }

    /// Forgets what happened so far. Look at the files after this, not before.
    pub fn clear(&self) -> io::Result<()> {
        let mut buffer = [0; 4096];
        loop {
            match rustix::io::read(&self.0, &mut buffer) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
