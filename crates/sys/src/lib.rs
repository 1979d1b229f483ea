//! Safe calls for what the standard library has no words for: advisory locks, reflinks and bulk transfers, what a
//! child inherits, who holds a file open, how much memory is really left, System V segments.
//!
//! This is the only crate that may contain `unsafe` and the only one that knows the operating system; one folder per
//! system behind one interface. It knows nothing of `PostgreSQL`.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "pgfresh runs on Linux so far: give crates/sys a folder for this system, with the items of `linux`"
);

mod lock;

#[cfg(target_os = "linux")]
mod linux;

#[cfg(target_os = "linux")]
pub use linux::{
    filesystem::{Filesystem, Kind},
    memory::available_memory,
    process::{die_with_parent, end_holders, inherit, is_ignored, new_session, wait_readable},
    segment::remove_segments,
    transfer::{reflink, sync_filesystem, transfer},
    watch::Watch,
};
pub use lock::Lock;
