//! Selects the leaf calls of this operating system. Leaf calls are functions that the rest of this
//! crate needs on every system and that each operating system implements with its own system calls.
//! The folders `linux` and `macos` both have all of these functions, in modules with the same names.
//!
//! With `--cfg pgfresh_portable`, `portable` uses the leaf calls of Linux instead of those of
//! macOS, so tests on Linux also cover the portable code that a Mac runs. If a system can't provide
//! a fact, the leaf call returns the value documented for this case, and callers must handle it.

#[cfg(target_os = "linux")]
use crate::linux as system;
#[cfg(target_os = "macos")]
use crate::macos as system;

#[cfg(any(target_os = "macos", pgfresh_portable))]
pub(crate) use system::descriptors::close_from;
pub use system::{
    boot::boot_id,
    clone::sync_filesystem,
    process_table::executable,
    socket_state::{is_closed_by_peer, is_hung_up, reset_now},
};
pub(crate) use system::{
    clone::clone_file,
    connection_table::owner_of_connection,
    mounts::mount_of,
    process_table::{has_open, is_only_thread, pids, process, users_of, writes_to},
    segment_table::{segments, semaphores},
    socket_state::peer,
};
