//! Wraps operating system calls that the standard library lacks in safe functions.
//! They include advisory locks, directory handles, clones of files, process handles,
//! memory limits, System V segments, user namespaces, and the disks below a path.
//!
//! This is the only crate that may contain `unsafe` or depend on the operating
//! system. It doesn't contain anything specific to PostgreSQL. Its folders:
//!
//! - `posix`: calls that Linux and macOS both have.
//! - `linux`: Linux's leaf calls ([`host`]), and functions built on calls that only Linux has.
//! - `portable`: the same functions, built on POSIX and on leaf calls.
//!   macOS uses them, and so does Linux with `--cfg pgfresh_portable`.
//! - `macos`: the leaf calls of macOS, and its process notifications.
//! - `kernel_files`: readers of the files that describe a machine on Linux.
//!
//! Functions that return [`std::io::Result`] return the system call's error, unless they document a different error.

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
compile_error!(
    "pgfresh runs on Linux and macOS: give crates/sys a folder with the items of `macos` for this system"
);

mod host;
mod kernel_files;
mod lock;
mod mutex;
mod posix;
mod refusals;

#[cfg(target_os = "linux")]
#[cfg_attr(
    pgfresh_portable,
    allow(dead_code, unreachable_pub, reason = "`portable` uses only the leaf calls")
)]
mod linux;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(any(target_os = "macos", pgfresh_portable))]
mod portable;

#[cfg(not(any(target_os = "macos", pgfresh_portable)))]
use linux as system;
#[cfg(any(target_os = "macos", pgfresh_portable))]
use portable as system;

pub use host::{boot_id, executable, is_closed_by_peer, is_hung_up, reset_now, sync_filesystem};
pub use kernel_files::{
    disk::Disk,
    mount::{Mount, Roots},
    nvme::Heat,
    readings::{Readings, Sensors},
    shortage::{ProcessorWatch, Shortage, pressure},
    storage_stack::{Bottom, Stack},
};
pub use lock::Lock;
pub use mutex::{lock, sound};
pub use posix::{
    child::{inherit, new_session},
    directory::{Directory, FileKind, is_absent},
    environment::take_variable,
    filesystem::{Filesystem, FilesystemKind},
    handle::{ProcessHandle, signal, signal_group},
    holders::{ask_holders_to_quit, end_holders, end_listener},
    holes::{next_data, next_hole},
    identity::{fill_random, group, host_name, is_ignored, is_root, user},
    loopback_peer::{is_open_on_this_machine, is_own_loopback_peer},
    machine::{clock_ticks, load_average},
    open_file_limit::{file_size_limit, limit_hint, raise_open_file_limit, restore_open_file_limit},
    permissions::{expect_usable, expect_writable, may_enter},
    poll::wait_readable,
    process_facts::{is_asleep, is_ending},
    segments::remove_segments,
    socket::{
        MAX_SOCKET_PATH_LENGTH, is_from_our_user, is_idle_socket, keep_alive, reset_on_close, set_backlog,
        set_send_buffer,
    },
    terminal::{leads_its_session, replace_stdin, terminal_width},
    umask::{allow_others_to_read, apply_original_mask, make_private, restore_mask},
    unbuffered::{Waiting, open_for_writes, page_aligned},
};
pub use refusals::take_refusals;
pub use rustix::process::{Pid, Signal};
pub use system::{
    connections::listener_at,
    directory_watch::DirectoryWatch,
    event_queue::EventQueue,
    machine::{kernel, processor, run_delay, runnable_tasks, total_memory},
    memory::available_memory,
    namespace::{may_become, run_in_user_namespace},
    parent::die_with_parent,
    pipe::NarrowPipe,
    posix_memory::refuse_posix_segments,
    process_info::{children_of, command_line, peak_memory, processor_time, resident_memory},
    program::{set_process_name, this_program},
    transfer::transfer,
};
