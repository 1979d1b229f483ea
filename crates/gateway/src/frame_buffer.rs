//! Collects bytes from one side of a session until a message is complete, or forwards a large message in pieces.

use pgwire::{Frame, MalformedFrame};

use crate::buffer::CHUNK;

/// Bytes received from one side.
#[derive(Debug, Default)]
pub(crate) struct FrameBuffer {
    bytes: Vec<u8>,
    /// Number of bytes at the start that have already been processed.
    start: usize,
    /// Number of bytes that haven't arrived yet of a message that the drive handles in pieces. The flag is false if the
    /// drive discards these bytes instead of forwarding them.
    pub(crate) rest: (usize, bool),
    /// Number of bytes that must arrive before the session can read its next message. 0 if the drive isn't waiting.
    pub(crate) wanted: usize,
}

impl FrameBuffer {
    pub(crate) fn left(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Forwards or discards the next piece of a message. Returns false if no bytes have arrived.
    pub(crate) fn pass(&mut self, to: &mut Vec<u8>) -> bool {
        let count = self.rest.0.min(self.left().len());
        if self.rest.1 {
            to.extend_from_slice(&self.left()[..count]);
        }
        self.start += count;
        self.rest.0 -= count;
        count > 0
    }

    /// Returns the next frame's tag and its length including the header, or `None` if the header hasn't arrived
    /// completely.
    pub(crate) fn head(&self) -> Result<Option<(u8, usize)>, MalformedFrame> {
        Frame::header(self.left())
    }

    /// Removes and returns a message once it has arrived completely.
    pub(crate) fn take(&mut self, length: usize) -> Option<&[u8]> {
        if self.left().len() < length {
            self.wanted = length;
            return None;
        }
        self.wanted = 0;
        self.start += length;
        Some(&self.bytes[self.start - length..self.start])
    }

    /// Puts back the message that the last call of [`Self::take`] returned.
    pub(crate) fn put_back(&mut self, length: usize) {
        self.start -= length;
    }

    /// Returns the number of bytes of memory that the buffer uses.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.left().len() < CHUNK.max(self.wanted)
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.start);
        self.start = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Frees the memory of an empty buffer, so that an idle session needs none.
    pub(crate) fn shrink(&mut self) {
        if self.left().is_empty() {
            (self.bytes, self.start) = (Vec::new(), 0);
        }
    }
}
