//! Safe wrappers for operating system calls that the standard library lacks. They include advisory locks,
//! directory handles, reflinks, process handles, memory limits, System V segments, user namespaces, and the
//! disks below a path.
//!
//! This is the only crate that may contain `unsafe` or depend on the operating system. Each operating system
//! has its own folder, and all folders provide the same interface. This crate knows nothing about PostgreSQL.
//!
//! Functions that return [`std::io::Result`] pass on the system call's error, unless they document another one.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "pgfresh runs on Linux so far: give crates/sys a folder for this system, with the items of `linux`"
);

mod lock;
mod mutex;

#[cfg(target_os = "linux")]
mod linux;

#[cfg(target_os = "linux")]
pub use linux::{
    boot::boot_id,
    directory::{Directory, FileKind, is_absent},
    directory_watch::DirectoryWatch,
    disk::Disk,
    environment::take_variable,
    filesystem::{Filesystem, FilesystemKind},
    handle::{ProcessHandle, signal, signal_group},
    holes::{next_data, next_hole},
    identity::{group, is_root, set_process_name, this_program, user},
    loopback_peer::{is_open_on_this_machine, is_own_loopback_peer, listener_at},
    machine::{
        clock_ticks, host_name, kernel, load_average, processor, run_delay, runnable_tasks, total_memory,
    },
    memory::available_memory,
    mount::{Mount, Roots},
    namespace::{may_become, run_in_user_namespace},
    nvme::Heat,
    open_file_limit::{file_size_limit, limit_hint, raise_open_file_limit, restore_open_file_limit},
    permissions::{expect_usable, expect_writable, may_enter},
    pipe::narrow_pipe,
    poll::wait_readable,
    posix_memory::refuse_posix_segments,
    process::{die_with_parent, end_holders, inherit, is_ignored, new_session},
    process_info::{
        children_of, command_line, executable, is_asleep, is_ending, peak_memory, processor_time,
        resident_memory, writes_to,
    },
    random::fill_random,
    readings::{Readings, Sensors},
    shortage::{ProcessorWatch, Shortage, pressure},
    socket::{
        is_closed_by_peer, is_from_our_user, is_hung_up, is_idle_socket, keep_alive, limit_backlog,
        reset_now, reset_on_close, set_send_buffer,
    },
    storage_stack::{Bottom, Stack},
    system_v_memory::remove_segments,
    terminal::{leads_its_session, replace_stdin, terminal_width},
    transfer::{reflink, sync_filesystem, transfer},
    umask::{allow_others_to_read, apply_original_mask, make_private, restore_mask},
    unbuffered::{Waiting, open_for_writes, page_aligned},
};
pub use lock::Lock;
pub use mutex::{lock, sound};
pub use rustix::process::{Pid, Signal};
