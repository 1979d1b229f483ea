//! Notifies pgfresh when a file is written, so that pgfresh doesn't have to poll the file.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::inotify;

use crate::Directory;
use crate::posix::poll::wait_for_any;
use crate::posix::polled_directory::PolledDirectory;
use crate::refusals::note_refusal;

/// A watch for one directory. A wait ends when a process closes a file in the directory after writing to it, or
/// renames a file into the directory. If the kernel refuses notifications, each wait ends after a short poll interval.
#[derive(Debug)]
pub struct DirectoryWatch(Kind);

#[derive(Debug)]
enum Kind {
    /// An inotify queue, which becomes readable at each event.
    Notified(OwnedFd),
    Polled(PolledDirectory),
}

impl DirectoryWatch {
    /// Watches the files in `directory`, but not in its subdirectories.
    #[must_use]
    pub fn new(directory: &Directory) -> Self {
        Self(match queue(directory) {
            Ok(queue) => Kind::Notified(queue),
            // A system call filter can refuse the calls, and a user can have too many queues or watches.
            Err(error) => {
                note_refusal("inotify", &error);
                Kind::Polled(PolledDirectory::begin())
            }
        })
    }

    /// Waits until an event comes or all writers of the pipe `alive` have closed it, but at most for `timeout`.
    /// Returns true if the pipe was closed.
    pub fn wait(&self, alive: impl AsFd, timeout: Duration) -> io::Result<bool> {
        let queue = match &self.0 {
            Kind::Notified(queue) => queue,
            Kind::Polled(directory) => return directory.wait(alive, timeout),
        };
        let mut waited = [PollFd::new(queue, PollFlags::IN), PollFd::new(&alive, PollFlags::IN)];
        wait_for_any(&mut waited, timeout)?;
        Ok(waited[1].revents().contains(PollFlags::HUP))
    }

    /// Ends the watch without blocking the caller. Closing the queue takes up to 20 ms,
    /// because the kernel waits for an RCU grace period, so a separate thread closes the
    /// queue. If this thread can't be started, the calling thread closes the queue itself.
    pub fn end(self) {
        if let Kind::Notified(queue) = self.0 {
            let thread = thread::Builder::new().name("end of watch".to_owned());
            drop(thread.spawn(move || drop(queue)));
        }
    }

    /// Discards all pending events. Examine the files only after this call, otherwise you can miss a change.
    pub fn clear(&self) -> io::Result<()> {
        let Kind::Notified(queue) = &self.0 else { return Ok(()) };
        let mut buffer = [0; 4096];
        loop {
            match rustix::io::read(queue, &mut buffer) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Opens a queue of events in `directory`. Source: inotify(7).
fn queue(directory: &Directory) -> io::Result<OwnedFd> {
    let queue = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
    inotify::add_watch(
        &queue,
        format!("/proc/self/fd/{}", directory.as_fd().as_raw_fd()),
        inotify::WatchFlags::CLOSE_WRITE | inotify::WatchFlags::MOVED_TO,
    )?;
    Ok(queue)
}
