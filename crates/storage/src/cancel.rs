//! Lets one thread cancel another thread's copy through a shared flag.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};

/// Returns an error if `cancelled` is set.
pub(crate) fn check_cancelled(cancelled: &AtomicBool) -> io::Result<()> {
    if cancelled.load(Ordering::Relaxed) { Err(io::Error::other("cancelled")) } else { Ok(()) }
}

/// A reader that returns an error once `cancelled` is set. Otherwise, reading a long file over a slow network
/// would delay the cancellation.
pub(crate) struct Cancellable<'a, R> {
    pub(crate) source: R,
    pub(crate) cancelled: &'a AtomicBool,
}

impl<R: Read> Read for Cancellable<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        check_cancelled(self.cancelled)?;
        self.source.read(buffer)
    }
}
