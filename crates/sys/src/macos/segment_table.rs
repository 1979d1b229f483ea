//! Lists the System V shared memory and the semaphores of a process.
//!
//! macOS has room for 32 segments on the whole machine, so pgfresh must remove the segments of killed
//! servers. On macOS, servers keep their semaphores in the kernel, too. The kernel lists both through a
//! sysctl that the `ipcs` command uses and that no public header describes. If the kernel doesn't support
//! the command's version or length, it refuses the command, and these functions return empty lists.

use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::ptr::null_mut;

use libc::{semid_ds, shmid_ds};
use rustix::process::Pid;

use super::structures::KernelStructure;
use crate::posix::segments::Segment;

/// Version of [`Command`]. Source: `bsd/sys/ipcs.h` of XNU, as for the operations.
const MAGIC: c_int = 1;
const ITERATE_SEGMENTS: c_int = 0x02;
const ITERATE_SEMAPHORES: c_int = 0x20;

/// A request for the next entry of a table. Source: `bsd/sys/ipcs.h` of XNU.
#[repr(C)]
struct Command {
    magic: c_int,
    operation: c_int,
    /// Number of the entry to begin with. The kernel sets this field to the number after the returned entry.
    cursor: c_int,
    length: c_int,
    entry: *mut c_void,
}

const _: () = assert!(size_of::<Command>() == 24, "struct IPCS_command");

/// Returns the segments that `account` owns and the process `creator` created.
#[expect(clippy::unnecessary_wraps, reason = "the table of Linux can be unreadable")]
pub(crate) fn segments(creator: Pid, account: u32) -> io::Result<Vec<Segment>> {
    let all: Vec<shmid_ds> = entries(c"kern.sysv.ipcs.shm", ITERATE_SEGMENTS);
    let of_creator = all.into_iter().filter(|segment| {
        segment.shm_cpid == creator.as_raw_nonzero().get() && segment.shm_perm.uid == account
    });
    let segment = |segment: shmid_ds| {
        Some(Segment { id: segment_id(segment.shm_perm._key)?, is_attached: segment.shm_nattch != 0 })
    };
    Ok(of_creator.filter_map(segment).collect())
}

/// Returns the ids of the semaphore sets that `account` owns and the process `creator` created. The kernel doesn't
/// record which process created a set. But a postmaster marks each new set with an operation on the last semaphore,
/// and the kernel records which process did that. Source: `IpcSemaphoreCreate` in `PostgreSQL`'s `sysv_sema.c`.
pub(crate) fn semaphores(creator: Pid, account: u32) -> Vec<i32> {
    let all: Vec<semid_ds> = entries(c"kern.sysv.ipcs.sem", ITERATE_SEMAPHORES);
    let of_account = all.into_iter().filter(|set| set.sem_perm.uid == account && set.sem_nsems > 0);
    let ids = of_account
        .filter_map(|set| Some((semaphores_id(set.sem_perm._key)?, c_int::from(set.sem_nsems) - 1)));
    ids.filter(|(id, last)| last_process(*id, *last) == Some(creator.as_raw_nonzero().get()))
        .map(|(id, _)| id)
        .collect()
}

/// Returns the entries of a table, or an empty list if the kernel refuses the command.
#[allow(unsafe_code)]
fn entries<T: KernelStructure>(table: &CStr, operation: c_int) -> Vec<T> {
    let mut found = Vec::new();
    let Ok(length) = c_int::try_from(size_of::<T>()) else { return found };
    let mut next = 0;
    loop {
        let mut entry = T::zeroed();
        let mut command =
            Command { magic: MAGIC, operation, cursor: next, length, entry: (&raw mut entry).cast() };
        let mut size = size_of::<Command>();
        let place = (&raw mut command).cast::<c_void>();
        // SAFETY: the kernel reads and writes `size` bytes of the command, and writes `length` bytes to the entry,
        // which any bytes make valid.
        let result = unsafe { libc::sysctlbyname(table.as_ptr(), place, &raw mut size, place, size) };
        if result != 0 || command.cursor <= next {
            return found;
        }
        next = command.cursor;
        found.push(entry);
    }
}

/// Returns the id of the segment with this key, or `None` if it doesn't exist.
#[allow(unsafe_code)]
fn segment_id(key: libc::key_t) -> Option<i32> {
    // SAFETY: the call takes no pointers.
    Some(unsafe { libc::shmget(key, 0, 0) }).filter(|id| *id >= 0)
}

/// Returns the id of the semaphore set with this key, or `None` if it doesn't exist.
#[allow(unsafe_code)]
fn semaphores_id(key: libc::key_t) -> Option<i32> {
    // SAFETY: the call takes no pointers.
    Some(unsafe { libc::semget(key, 0, 0) }).filter(|id| *id >= 0)
}

/// Returns the pid of the process that last changed a semaphore,
/// or `None` if no process has changed it or if the set is gone.
#[allow(unsafe_code)]
fn last_process(id: i32, semaphore: c_int) -> Option<i32> {
    // SAFETY: GETPID takes no fourth argument.
    Some(unsafe { libc::semctl(id, semaphore, libc::GETPID, null_mut::<c_void>()) }).filter(|pid| *pid > 0)
}
