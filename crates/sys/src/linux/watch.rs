//! Waking up when a file was written.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::inotify;

use super::directory::Directory;
use super::poll::wait_for_any;

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
        let mut waited = [PollFd::new(&self.0, PollFlags::IN), PollFd::new(&alive, PollFlags::IN)];
        wait_for_any(&mut waited, patience)?;
        Ok(waited[1].revents().contains(PollFlags::HUP))
    }

    /// Ends it without a wait. To close the queue takes up to 20 ms, because the kernel waits until no processor can be
    /// looking at what was watched; so a thread does it, or the caller if there can be none.
    pub fn end(self) {
        let thread = thread::Builder::new().name("end of watch".to_owned());
        drop(thread.spawn(move || drop(self)));
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
