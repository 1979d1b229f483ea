//! Provides one read buffer per thread. All sessions on a thread share the buffer, so idle sessions don't need their
//! own.

use std::cell::RefCell;

/// Maximum size of one read, in bytes.
pub(crate) const CHUNK: usize = 64 << 10;

thread_local! {
    pub(crate) static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; CHUNK].into());
}
