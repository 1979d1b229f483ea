//! Implements the leaf calls of Linux, and the functions built on calls that only Linux has.

pub(crate) mod boot;
pub(crate) mod clone;
pub(crate) mod connection_table;
pub(crate) mod connections;
#[cfg(pgfresh_portable)]
pub(crate) mod descriptors;
pub(crate) mod directory_watch;
pub(crate) mod event_queue;
pub(crate) mod exit_event;
pub(crate) mod filesystem_kind;
pub(crate) mod machine;
pub(crate) mod memory;
pub(crate) mod mounts;
pub(crate) mod namespace;
pub(crate) mod nvme;
pub(crate) mod parent;
pub(crate) mod pipe;
pub(crate) mod posix_memory;
pub(crate) mod process_info;
pub(crate) mod process_table;
pub(crate) mod program;
pub(crate) mod segment_table;
mod socket_diag;
pub(crate) mod socket_state;
pub(crate) mod transfer;
pub(crate) mod unbuffered;
