//! The leaf calls that each operating system makes in its own way, and that the rest of this crate needs on all of
//! them. Each system's folder provides all of these functions, in modules of the same names.
//!
//! With `--cfg pgfresh_portable`, those of Linux stand in for those of macOS, so that tests on Linux execute all code
//! above them. Callers must cope with each answer that is documented as "not known".

#[cfg(target_os = "linux")]
use crate::linux as system;
#[cfg(target_os = "macos")]
use crate::macos as system;

#[cfg(any(target_os = "macos", pgfresh_portable))]
pub(crate) use system::descriptors::close_from;
pub use system::{
    boot::boot_id,
    clone::sync_filesystem,
    socket_state::{is_closed_by_peer, is_hung_up, reset_now},
};
pub(crate) use system::{
    clone::clone_file,
    connection_table::owner_of_connection,
    mounts::mount_of,
    process_table::{executable, has_open, is_only_thread, pids, process, users_of, writes_to},
    segment_table::{segments, semaphores},
    socket_state::peer_user,
};
