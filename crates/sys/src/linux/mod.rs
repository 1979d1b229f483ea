//! Linux: what the interface of this crate means there.

pub(crate) mod filesystem;
pub(crate) mod memory;
pub(crate) mod process;
pub(crate) mod segment;
pub(crate) mod transfer;
pub(crate) mod watch;
