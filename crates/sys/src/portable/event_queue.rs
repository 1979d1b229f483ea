//! Waits for events on many descriptors concurrently. Source: poll(2).

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};

/// Duplicates of the descriptors that one thread waits for. The caller assigns a number to each descriptor.
#[derive(Debug)]
pub struct EventQueue(Vec<(OwnedFd, u64)>);

impl EventQueue {
    /// Creates an empty queue.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Vec::new()))
    }

    /// Adds a descriptor. Waits report `number` while the descriptor is readable or closed by its peer.
    pub fn add(&mut self, descriptor: impl AsFd, number: u64) -> io::Result<()> {
        self.0.push((descriptor.as_fd().try_clone_to_owned()?, number));
        Ok(())
    }

    /// Removes the descriptors with this number. Callers must call this when they close a descriptor.
    pub fn remove(&mut self, number: u64) {
        self.0.retain(|(_, other)| *other != number);
    }

    /// Waits for events, and adds their numbers to `ready`.
    pub fn wait(&mut self, ready: &mut Vec<u64>) -> io::Result<()> {
        let mut waited: Vec<_> =
            self.0.iter().map(|(descriptor, _)| PollFd::new(descriptor, PollFlags::IN)).collect();
        rustix::io::retry_on_intr(|| poll(&mut waited, None))?;
        let numbers = waited.iter().zip(&self.0).filter(|(waited, _)| !waited.revents().is_empty());
        ready.extend(numbers.map(|(_, (_, number))| *number));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn queue_reports_readable_and_closed_descriptors() {
        let mut queue = EventQueue::new().unwrap();
        let [(mut one, read), (other, closed), (_idle, quiet)] =
            [(); 3].map(|()| UnixStream::pair().unwrap());
        for (descriptor, number) in [(&read, 1), (&closed, 2), (&quiet, 3)] {
            queue.add(descriptor, number).unwrap();
        }
        one.write_all(b"x").unwrap();
        drop(other);
        let mut ready = Vec::new();
        queue.wait(&mut ready).unwrap();
        assert_eq!(ready, [1, 2]);
        queue.remove(1);
        queue.wait(&mut ready).unwrap();
        assert_eq!(ready, [1, 2, 2]);
    }
}
