//! Reads the process table. Source: proc(5).

use std::fs::{self, File};
use std::io::{self, PipeReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::fstat;

use crate::posix::process_facts::{Process, ProcessState};

/// The kernel's flag for an exiting process. Source: `PF_EXITING` in `linux/sched.h`.
const EXITING: u64 = 4;

/// Returns the pids of all processes that we can see.
///
/// # Errors
/// Returns an error if the process table can't be read, or if `/proc` isn't mounted.
pub(crate) fn pids() -> io::Result<Vec<u32>> {
    let entries = fs::read_dir("/proc")?.flatten();
    let pids: Vec<_> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    // Without a mount, `/proc` is an empty directory. Otherwise, it has our own process.
    if pids.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(pids) }
}

/// Returns facts about a process, or `None` if it doesn't exist or the system doesn't show it to us. Reading the files
/// of an exiting process delays the release of its memory.
///
/// Allocates nothing, so a process may call this between fork and exec.
pub(crate) fn process(pid: u32) -> Option<Process> {
    // The buffer has room for the pid, the program's name of up to 15 bytes, and 20 fields of up to 20 digits.
    let mut stat = [0; 512];
    let mut path = [0; "/proc/4294967295/stat".len()];
    let mut rest = &mut path[..];
    write!(rest, "/proc/{pid}/stat").ok()?;
    let unused = rest.len();
    let path = std::str::from_utf8(&path[..path.len() - unused]).ok()?;
    let length = File::open(path).and_then(|mut file| file.read(&mut stat)).ok()?;
    // The name is in parentheses and can contain any character, including a parenthesis.
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let text = std::str::from_utf8(stat.get(name_end + 1..length)?).ok()?;
    let mut fields = text.split_ascii_whitespace();
    let (letter, parent) = (fields.next()?, fields.next()?.parse().ok()?);
    let flags: u64 = fields.nth(4)?.parse().ok()?;
    let state = match letter {
        "Z" | "X" => ProcessState::Ended,
        _ if flags & EXITING != 0 => ProcessState::Ending,
        "S" => ProcessState::Asleep,
        _ => ProcessState::Busy,
    };
    Some(Process { parent, started: fields.nth(12)?.parse().ok()?, state })
}

/// Returns the real, effective and saved uid of a process, and its uid for file access. Returns `None` if the process
/// doesn't exist.
pub(crate) fn users_of(pid: u32) -> Option<Vec<u32>> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_whitespace().map(|user| user.parse().ok()).collect()
}

/// Returns true if a process has the file at the canonical `path` open. Returns false if we can't see the process's
/// files, because the process has ended or belongs to another user.
pub(crate) fn has_open(pid: u32, path: &Path) -> bool {
    let files = match open_files(pid) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && crate::is_root() => {
            // In most containers, root isn't allowed to examine the
            // processes of other users, but it can become these users.
            as_owner_of(pid, || open_files(pid))
        }
        files => files,
    };
    files.is_ok_and(|files| files.iter().any(|file| file == path))
}

/// Returns the files that a process has open.
fn open_files(pid: u32) -> io::Result<Vec<PathBuf>> {
    let files = fs::read_dir(format!("/proc/{pid}/fd"))?.flatten().map(|file| fs::read_link(file.path()));
    // Skip files that the process has closed in the meantime.
    files.filter(|file| !file.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)).collect()
}

/// Calls `look` with the file access rights of a process's user and
/// group. Source: setfsuid(2), which only affects the calling thread.
#[allow(unsafe_code)]
fn as_owner_of<T>(pid: u32, look: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let owner = fs::metadata(format!("/proc/{pid}"))?;
    // SAFETY: these calls have no memory preconditions. They return the previous ids, even if they fail.
    let (group, user) = unsafe { (libc::setfsgid(owner.gid()), libc::setfsuid(owner.uid())) };
    let seen = look();
    // SAFETY: these calls have no memory preconditions.
    unsafe {
        libc::setfsuid(user.cast_unsigned());
        libc::setfsgid(group.cast_unsigned());
    }
    seen
}

/// Returns true if a process's standard output is the pipe that `reader` reads. Returns false if the system can't tell.
pub(crate) fn writes_to(pid: u32, reader: &PipeReader) -> bool {
    let Ok(output) = fs::metadata(format!("/proc/{pid}/fd/1")) else { return false };
    fstat(reader).is_ok_and(|pipe| (pipe.st_dev, pipe.st_ino) == (output.dev(), output.ino()))
}

/// Returns the process's executable, or `None` if the process or the file no longer exists.
#[must_use]
pub fn executable(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok().filter(|path| path.exists())
}

/// Returns true if the calling thread is this process's only thread. Returns false if the system can't tell.
pub(crate) fn is_only_thread() -> bool {
    fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_has_its_parent_and_users() {
        let ours = process(std::process::id()).unwrap();
        assert_eq!(ours.parent, std::os::unix::process::parent_id());
        assert_eq!(ours.started, process(std::process::id()).unwrap().started);
        assert!(pids().unwrap().contains(&std::process::id()));
        assert!(users_of(std::process::id()).unwrap().contains(&crate::user()));
        assert_eq!(executable(std::process::id()), std::env::current_exe().ok());
    }
}
