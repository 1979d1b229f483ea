//! Cancellation of a copy by a flag.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};

/// Fails once `cancelled` is set.
pub(crate) fn go_on(cancelled: &AtomicBool) -> io::Result<()> {
    if cancelled.load(Ordering::Relaxed) { Err(io::Error::other("cancelled")) } else { Ok(()) }
}

/// Reader that fails once `cancelled` is set. A long file on a slow network could otherwise delay the cancellation.
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
