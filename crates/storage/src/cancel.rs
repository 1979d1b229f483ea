//! Copying that can be cancelled by a flag.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};

/// An error once `cancelled` is set.
pub(crate) fn go_on(cancelled: &AtomicBool) -> io::Result<()> {
    if cancelled.load(Ordering::Relaxed) { Err(io::Error::other("cancelled")) } else { Ok(()) }
}

/// A reader that fails once it is cancelled: a file may be long, and come over a slow network.
pub(crate) struct Cancellable<'a, R> {
    pub(crate) source: R,
    pub(crate) cancelled: &'a AtomicBool,
}

impl<R: Read> Read for Cancellable<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        go_on(self.cancelled)?;
        self.source.read(buffer)
    }
}
