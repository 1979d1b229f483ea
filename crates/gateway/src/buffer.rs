//! What all sessions of a thread read with: an idle one holds no buffer.

use std::cell::RefCell;

/// Bytes that are read at once.
pub(crate) const CHUNK: usize = 64 << 10;

thread_local! {
    pub(crate) static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; CHUNK].into());
}
