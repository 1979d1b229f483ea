//! Reads the process table. Source: `libproc.h` and `sys/proc_info.h` of macOS, `bsd/kern/proc_info.c` of XNU.
//!
//! The kernel shows the open files, the threads and the start of a process only to its own user and to root.

use std::ffi::{OsStr, c_int, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

use libc::{proc_bsdinfo, proc_bsdshortinfo, proc_fdinfo, proc_taskinfo, proc_threadinfo};

use super::structures::{
    KernelStructure, PROC_FLAG_INEXIT, PROC_PIDFDVNODEINFO, PROC_PIDLISTTHREADS, PROX_FDTYPE_VNODE,
    TH_STATE_WAITING, VnodeFile,
};
use crate::posix::process_facts::{Process, ProcessState};

/// Argument that makes `proc_pidinfo` describe zombies, too.
const WITH_ENDED: u64 = 1;
/// Number of spare entries in a buffer for a list, because the list may grow after the kernel has counted its entries.
const SPARE: usize = 64;
/// Size of the buffer for a process's threads. A process that fills the buffer counts as busy.
const MOST_THREADS: usize = 64;

/// Returns the pids of all processes.
///
/// # Errors
/// Returns an error if the process table can't be read.
#[allow(unsafe_code)]
pub(crate) fn pids() -> io::Result<Vec<u32>> {
    // SAFETY: without a buffer, the call returns the number of processes.
    let count = unsafe { libc::proc_listallpids(null_mut(), 0) };
    let mut pids = vec![0_i32; usize::try_from(count).map_err(|_| io::Error::last_os_error())? + SPARE];
    let (place, length) = buffer_of(&mut pids);
    // SAFETY: the kernel writes at most `length` bytes to the buffer.
    let count = unsafe { libc::proc_listallpids(place, length) };
    pids.truncate(usize::try_from(count).map_err(|_| io::Error::last_os_error())?);
    Ok(pids.into_iter().filter_map(|pid| u32::try_from(pid).ok()).collect())
}

/// Returns facts about a process, or `None` if it doesn't exist or if the kernel shows it only to another user.
/// Allocates nothing, so a process may call this between fork and exec.
pub(crate) fn process(pid: u32) -> Option<Process> {
    let facts: proc_bsdinfo = structure(pid, libc::PROC_PIDTBSDINFO, WITH_ENDED)?;
    let state = if facts.pbi_status == libc::SZOMB {
        ProcessState::Ended
    } else if facts.pbi_flags & PROC_FLAG_INEXIT != 0 {
        ProcessState::Ending
    } else if facts.pbi_status != libc::SSTOP && all_threads_wait(pid) {
        ProcessState::Asleep
    } else {
        ProcessState::Busy
    };
    let started = facts.pbi_start_tvsec * 1_000_000 + facts.pbi_start_tvusec;
    Some(Process { parent: facts.pbi_ppid, started, state })
}

/// Returns true if all threads of a process wait for an event and a signal would wake them. Returns
/// false if the kernel can't tell, or if the process has at least [`MOST_THREADS`] threads.
fn all_threads_wait(pid: u32) -> bool {
    let mut threads = [0_u64; MOST_THREADS];
    let count = fill(pid, PROC_PIDLISTTHREADS, &mut threads);
    (1..MOST_THREADS).contains(&count)
        && threads[..count].iter().all(|thread| {
            let facts: Option<proc_threadinfo> = structure(pid, libc::PROC_PIDTHREADINFO, *thread);
            facts.is_some_and(|thread| thread.pth_run_state == TH_STATE_WAITING)
        })
}

/// Returns the real, effective and saved uid of a process, or `None` if it doesn't exist.
pub(crate) fn users_of(pid: u32) -> Option<Vec<u32>> {
    let facts: proc_bsdshortinfo = structure(pid, libc::PROC_PIDT_SHORTBSDINFO, WITH_ENDED)?;
    Some(vec![facts.pbsi_ruid, facts.pbsi_uid, facts.pbsi_svuid])
}

/// Returns true if a process has the file at `path` open. Returns false if we can't see the process's files, because
/// the process has ended or belongs to another user.
pub(crate) fn has_open(pid: u32, path: &Path) -> bool {
    let Ok(wanted) = path.metadata() else { return false };
    descriptors(pid, PROX_FDTYPE_VNODE).into_iter().any(|descriptor| {
        let file: Option<VnodeFile> = descriptor_structure(pid, descriptor, PROC_PIDFDVNODEINFO);
        file.is_some_and(|file| (u64::from(file.device), file.inode) == (wanted.dev(), wanted.ino()))
    })
}

/// Returns the process's executable, or `None` if the process or the file no longer exists.
#[must_use]
#[allow(unsafe_code)]
pub fn executable(pid: u32) -> Option<PathBuf> {
    let mut path = vec![0_u8; libc::PROC_PIDPATHINFO_MAXSIZE.cast_unsigned() as usize];
    let length = u32::try_from(path.len()).ok()?;
    // SAFETY: the kernel writes at most `length` bytes to the buffer.
    let length = unsafe { libc::proc_pidpath(number(pid)?, path.as_mut_ptr().cast(), length) };
    path.truncate(usize::try_from(length).ok().filter(|length| *length > 0)?);
    Some(PathBuf::from(OsStr::from_bytes(&path))).filter(|path| path.exists())
}

/// Returns false, because macOS has no call that finds the other end of the pipe of a process's standard output.
pub(crate) fn writes_to(_pid: u32, _reader: &io::PipeReader) -> bool {
    false
}

/// Returns true if the calling thread is this process's only thread. Returns false if the kernel can't tell.
pub(crate) fn is_only_thread() -> bool {
    let facts: Option<proc_taskinfo> = structure(std::process::id(), libc::PROC_PIDTASKINFO, 0);
    facts.is_some_and(|task| task.pti_threadnum == 1)
}

/// Returns a process's open descriptors of this `kind` (`PROX_FDTYPE_…`), or an empty list if we can't see them.
pub(super) fn descriptors(pid: u32, kind: u32) -> Vec<i32> {
    let facts: Option<proc_bsdinfo> = structure(pid, libc::PROC_PIDTBSDINFO, 0);
    let Some(process) = facts else { return Vec::new() };
    let mut all = vec![proc_fdinfo::zeroed(); process.pbi_nfiles as usize + SPARE];
    let count = fill(pid, libc::PROC_PIDLISTFDS, &mut all);
    all[..count].iter().filter(|file| file.proc_fdtype == kind).map(|file| file.proc_fd).collect()
}

/// Returns the description of one descriptor of a process, or `None` if the
/// kernel refuses the request or returns a structure with a different size.
#[allow(unsafe_code)]
pub(super) fn descriptor_structure<T: KernelStructure>(
    pid: u32,
    descriptor: i32,
    flavor: c_int,
) -> Option<T> {
    let mut found = [T::zeroed()];
    let (place, length) = buffer_of(&mut found);
    // SAFETY: the kernel writes at most `length` bytes, and any bytes are a valid structure.
    let written = unsafe { libc::proc_pidfdinfo(number(pid)?, descriptor, flavor, place, length) };
    let [found] = found;
    (written == length).then_some(found)
}

/// Returns a description of a process or of one of its threads, or `None` if
/// the kernel refuses the request or returns a structure with a different size.
#[allow(unsafe_code)]
fn structure<T: KernelStructure>(pid: u32, flavor: c_int, argument: u64) -> Option<T> {
    let mut found = [T::zeroed()];
    let (place, length) = buffer_of(&mut found);
    // SAFETY: the kernel writes at most `length` bytes, and any bytes are a valid structure.
    let written = unsafe { libc::proc_pidinfo(number(pid)?, flavor, argument, place, length) };
    let [found] = found;
    (written == length).then_some(found)
}

/// Fills the beginning of `entries` with a list that the kernel keeps for a process. Returns the number of filled
/// entries, which is 0 if the kernel refuses the call.
#[allow(unsafe_code)]
pub(super) fn fill<T: KernelStructure>(pid: u32, flavor: c_int, entries: &mut [T]) -> usize {
    let (place, length) = buffer_of(entries);
    let Some(process) = number(pid) else { return 0 };
    // SAFETY: the kernel writes at most `length` bytes, and any bytes are valid entries.
    let written = unsafe { libc::proc_pidinfo(process, flavor, 0, place, length) };
    usize::try_from(written).map_or(0, |written| written / size_of::<T>()).min(entries.len())
}

fn number(pid: u32) -> Option<c_int> {
    c_int::try_from(pid).ok()
}

/// Returns the address and the length in bytes of a buffer.
fn buffer_of<T>(buffer: &mut [T]) -> (*mut c_void, c_int) {
    let length = c_int::try_from(size_of_val(buffer)).unwrap_or(0);
    (buffer.as_mut_ptr().cast(), length)
}
