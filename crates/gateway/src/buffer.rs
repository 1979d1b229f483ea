//! Read buffer that all sessions of a thread share, so that an idle session needs no memory for one.

use std::cell::RefCell;

/// Maximum size of one read, in bytes.
pub(crate) const CHUNK: usize = 64 << 10;

thread_local! {
    pub(crate) static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; CHUNK].into());
}
