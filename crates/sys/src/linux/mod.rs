//! Linux: what the interface of this crate means there.

pub(crate) mod directory;
pub(crate) mod disk;
mod dying;
pub(crate) mod filesystem;
pub(crate) mod limit;
pub(crate) mod mask;
pub(crate) mod memory;
pub(crate) mod mount;
pub(crate) mod namespace;
pub(crate) mod neighbour;
pub(crate) mod nvme;
pub(crate) mod posix;
pub(crate) mod process;
pub(crate) mod readings;
pub(crate) mod segment;
pub(crate) mod socket_diag;
pub(crate) mod transfer;
pub(crate) mod unbuffered;
pub(crate) mod watch;
