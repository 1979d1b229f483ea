//! Leaf calls: functions that each operating system implements with its own system calls, and that the rest of this
//! crate needs on every system. The folders `linux` and `macos` both have all of these functions, in modules with
//! equal names.
//!
//! With `--cfg pgfresh_portable`, `portable` calls the leaf calls of Linux in place of those of macOS. So tests on
//! Linux run the code above the leaf calls that a Mac runs. A system may not know an answer. Callers must cope with the
//! value that the function's documentation names for this case.

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
