//! Implements the functions that `linux` offers to other crates, based on POSIX and on the leaf
//! calls of `host`. They poll where Linux has notifications. If neither POSIX nor a leaf call
//! provides a fact, they return `None`, an empty list or [`std::io::ErrorKind::Unsupported`].

pub(crate) mod connections;
pub(crate) mod directory_watch;
pub(crate) mod event_queue;
#[cfg(not(target_os = "macos"))]
pub(crate) mod exit_event;
pub(crate) mod filesystem_kind;
pub(crate) mod machine;
pub(crate) mod memory;
pub(crate) mod namespace;
pub(crate) mod nvme;
pub(crate) mod parent;
pub(crate) mod pipe;
pub(crate) mod posix_memory;
pub(crate) mod process_info;
pub(crate) mod program;
pub(crate) mod transfer;
pub(crate) mod unbuffered;

#[cfg(target_os = "macos")]
pub(crate) use crate::macos::exit_event;
