//! Notifies pgfresh when a file is written, so that it doesn't have to poll the file.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::inotify;

use super::directory::Directory;
use super::poll::wait_for_any;

/// An inotify queue. It becomes readable when a file in the watched directory is closed after writing, or
/// when a rename creates one.
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

    /// Waits until there is an event, until all writers of the pipe `alive` have closed it, or until
    /// `patience` has passed. Returns whether the pipe was closed.
    pub fn wait(&self, alive: impl AsFd, patience: Duration) -> io::Result<bool> {
        let mut waited = [PollFd::new(&self.0, PollFlags::IN), PollFd::new(&alive, PollFlags::IN)];
        wait_for_any(&mut waited, patience)?;
        Ok(waited[1].revents().contains(PollFlags::HUP))
    }

    /// Ends the watch without blocking the caller. Closing the queue takes up to 20 ms, because the kernel
    /// waits for an RCU grace period. A thread therefore closes it. If the thread can't be started, the
    /// caller closes the queue.
    pub fn end(self) {
        let thread = thread::Builder::new().name("end of watch".to_owned());
        drop(thread.spawn(move || drop(self)));
    }

    /// Discards all pending events. Examine the files after this call. If you examine them before it, you can
    /// miss an event.
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
