//! Notifies pgfresh when a file is written, so that pgfresh doesn't have to poll the file.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::inotify;

use crate::Directory;
use crate::posix::poll::wait_for_any;

/// An inotify queue for one directory. The queue becomes readable when a process closes a file in the
/// directory after writing to it, or renames a file into the directory.
#[derive(Debug)]
pub struct DirectoryWatch(OwnedFd);

impl DirectoryWatch {
    /// Watches the files in `directory`, but not in its subdirectories. Source: inotify(7).
    pub fn new(directory: &Directory) -> io::Result<Self> {
        let queue = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        inotify::add_watch(
            &queue,
            format!("/proc/self/fd/{}", directory.as_fd().as_raw_fd()),
            inotify::WatchFlags::CLOSE_WRITE | inotify::WatchFlags::MOVED_TO,
        )?;
        Ok(Self(queue))
    }

    /// Waits for an event, or for all writers of the pipe `alive` to close it, but at most for `timeout`.
    /// Returns true if the pipe was closed.
    pub fn wait(&self, alive: impl AsFd, timeout: Duration) -> io::Result<bool> {
        let mut waited = [PollFd::new(&self.0, PollFlags::IN), PollFd::new(&alive, PollFlags::IN)];
        wait_for_any(&mut waited, timeout)?;
        Ok(waited[1].revents().contains(PollFlags::HUP))
    }

    /// Ends the watch without blocking the caller. Because the kernel waits for an RCU grace period, closing
    /// the queue takes up to 20 ms, so this happens on a separate thread. If the thread can't be started, the
    /// caller closes the queue after all.
    pub fn end(self) {
        let thread = thread::Builder::new().name("end of watch".to_owned());
        drop(thread.spawn(move || drop(self)));
    }

    /// Discards all pending events. Examine the files only after this call, otherwise you can miss a change.
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
