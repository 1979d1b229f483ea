//! Waits for events on many descriptors concurrently. Source: epoll(7).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

/// Maximum number of events that one wait returns.
const MOST_EVENTS: usize = 64;

/// The descriptors that one thread waits for. The caller assigns a number to each descriptor.
#[derive(Debug)]
pub struct EventQueue(OwnedFd);

impl EventQueue {
    /// Creates an empty queue.
    pub fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// Adds a descriptor. Waits report `number` while the descriptor is readable or closed by its peer.
    pub fn add(&mut self, descriptor: impl AsFd, number: u64) -> io::Result<()> {
        Ok(epoll::add(&self.0, descriptor, EventData::new_u64(number), EventFlags::IN)?)
    }

    /// Does nothing, because Linux itself removes closed descriptors. Portable callers must call this when they close
    /// a descriptor.
    pub fn remove(&mut self, _number: u64) {}

    /// Waits for events, and adds their numbers to `ready`.
    pub fn wait(&mut self, ready: &mut Vec<u64>) -> io::Result<()> {
        let mut buffer = [const { MaybeUninit::uninit() }; MOST_EVENTS];
        loop {
            match epoll::wait(&self.0, &mut buffer, None) {
                Err(rustix::io::Errno::INTR) => {}
                waited => {
                    let (events, _) = waited?;
                    ready.extend(events.iter().map(|event| event.data.u64()));
                    return Ok(());
                }
            }
        }
    }
}
