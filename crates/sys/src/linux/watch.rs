//! Waking up when somebody has written a file.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

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
