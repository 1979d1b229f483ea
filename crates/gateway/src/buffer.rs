//! The read buffer of a thread. All sessions of the thread share it, so that an idle session needs no buffer.

use std::cell::RefCell;

/// Maximum size of one read, in bytes.
pub(crate) const CHUNK: usize = 64 << 10;

thread_local! {
    pub(crate) static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; CHUNK].into());
}
