//! A thread's read buffer. All sessions on the thread share this buffer, so that idle sessions need none of their own.

use std::cell::RefCell;

/// Maximum size of one read, in bytes.
pub(crate) const CHUNK: usize = 64 << 10;

thread_local! {
    pub(crate) static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; CHUNK].into());
}
