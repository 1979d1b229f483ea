//! Safe wrappers for operating system calls that the standard library lacks. Examples are advisory locks,
//! directory handles, reflinks, process handles, memory limits, System V segments, user namespaces, and the
//! disks below a path.
//!
//! This is the only crate that can contain `unsafe` or depend on the operating system. There is one folder
//! for each operating system, and all of them provide the same interface. This crate knows nothing about
//! PostgreSQL.

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
    disk::{Bottom, Disk, Stack},
    environment::take_variable,
    filesystem::{Filesystem, FilesystemKind},
    handle::{ProcessHandle, signal},
    holes::{next_data, next_hole},
    identity::{group, is_root, set_process_name, this_program, user},
    limit::{leave_usual_files, raise_files, remedy},
    machine::{clock_ticks, host_name, kernel, load_average, processor, runnable_tasks, total_memory},
    mask::{leave_usual_mask, leave_usual_mode, let_others_read, make_private},
    memory::available_memory,
    mount::{Mount, Roots},
    namespace::{call_ourselves, may_become},
    neighbour::{is_open_here, is_our_neighbour, listener_at},
    nvme::Heat,
    others::{
        children_of, command_line, executable, is_asleep, peak_memory, processor_time, resident_memory,
    },
    pipe::narrow_pipe,
    poll::wait_readable,
    posix::refuse_posix_segments,
    process::{die_with_parent, end_holders, inherit, is_ignored, new_session},
    random::fill_random,
    readings::{Readings, Sensors},
    rights::{expect_usable, expect_writable, may_enter},
    segment::remove_segments,
    shortage::{ProcessorWatch, Shortage, pressure},
    socket::{
        bound_waiting, is_closed_by_peer, is_from_our_user, is_hung_up, is_silent, keep_alive, reset_at_end,
        set_send_buffer,
    },
    terminal::{leads_its_session, replace_stdin, terminal_width},
    transfer::{reflink, sync_filesystem, transfer},
    unbuffered::{Waiting, open_for_writes, page_aligned},
    watch::Watch,
};
pub use lock::Lock;
pub use mutex::{lock, sound};
pub use rustix::process::{Pid, Signal};
