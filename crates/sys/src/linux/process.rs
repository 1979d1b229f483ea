//! Configures what a child process inherits, and terminates processes that hold a file open.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal};

use super::handle::ProcessHandle;
use super::poll::wait_readable;
use super::polling::poll_until;
use super::system_v_memory::remove_segments;
use crate::Lock;

/// Lets the child of `command` inherit `descriptors` under the same numbers. In this process they remain
/// close-on-exec, so that other children don't inherit them. Dropping `command` closes them here.
#[allow(unsafe_code)]
pub fn inherit(command: &mut Command, descriptors: Vec<OwnedFd>) {
    let keep = move || {
        for descriptor in &descriptors {
            fcntl_setfd(descriptor, FdFlags::empty())?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec, the closure only makes fcntl(2) calls, which are async-signal-safe. It
    // neither allocates nor locks.
    unsafe { command.pre_exec(keep) };
}

/// Starts the child of `command` in a new session, which shields it from the terminal and from signals to our
/// process group.
#[allow(unsafe_code)]
pub fn new_session(command: &mut Command) {
    // SAFETY: setsid(2) is async-signal-safe, and the closure does nothing else.
    unsafe { command.pre_exec(|| rustix::process::setsid().map(drop).map_err(Into::into)) };
}

/// Makes the kernel send `SIGTERM` to the child of `command` when the spawning thread exits, even if it was
/// killed by `SIGKILL`.
///
/// The child must be spawned from a thread that lives as long as this process. The kernel drops this setting
/// if the child changes its user.
#[allow(unsafe_code)]
pub fn die_with_parent(command: &mut Command) {
    let parent = rustix::process::getpid();
    let die = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
        // The parent may have died before the call above.
        if rustix::process::getppid() == Some(parent) {
            Ok(())
        } else {
            Err(io::Error::other("parent is gone"))
        }
    };
    // SAFETY: prctl(2) and getppid(2) are async-signal-safe. Only the error path allocates, and the child
    // exits on that path.
    unsafe { command.pre_exec(die) };
}

/// Returns true if this process ignores `signal`, for example because it was started under `nohup` or as a
/// background job of a shell.
#[must_use]
pub fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask =
        status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Terminates every process that has the lock file `path` open and belongs to `account` or to our own user.
/// Sends `SIGQUIT`, then after `grace` sends `SIGKILL` to the processes that remain, and finally removes
/// their System V segments. Returns true if the lock is free afterwards. Never terminates the calling
/// process.
///
/// Processes of other users are left alone. They may not belong to the server at all, since a process can
/// send its open files to any other process over a socket (unix(7), `SCM_RIGHTS`).
///
/// `path` must be canonical. Only root can see the open files of other users' processes. The search reads
/// every `/proc/PID/fd`, which takes milliseconds on a busy machine, so don't call this function during
/// normal operation.
///
/// # Errors
/// Returns an error if `/proc` cannot be read. Processes that end during the search cause no error.
#[expect(clippy::let_underscore_must_use, reason = "a holder may have ended since, which is what we want")]
pub fn end_holders(path: &Path, account: u32, grace: Duration) -> io::Result<bool> {
    let mut ended = Vec::new();
    for (signal, timeout) in [(Signal::QUIT, grace), (Signal::KILL, grace), (Signal::KILL, grace)] {
        let (pids, holders): (Vec<_>, Vec<_>) = holders(path, account)?.into_iter().unzip();
        if holders.is_empty() {
            break;
        }
        for holder in &holders {
            // Ignore errors, because the process may have exited since the search.
            let _ = holder.signal(signal);
        }
        wait_for_all(&holders, timeout)?;
        ended.extend(pids);
    }
    // An exiting process no longer lists its open files, but it retains them and its memory for a few
    // milliseconds.
    let free = poll_until(|| Ok(!Lock::is_held(path)?))?;
    for creator in ended {
        remove_segments(creator, account)?;
    }
    Ok(free)
}

/// Returns the processes that have `path` open and belong to `account` or to our user.
fn holders(path: &Path, account: u32) -> io::Result<Vec<(Pid, ProcessHandle)>> {
    let ours = rustix::process::getpid();
    let users = [account, rustix::process::geteuid().as_raw()];
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw)
        else {
            continue;
        };
        let holds = || {
            // Skip processes whose files we can't read: they either exited during the search or belong to
            // other users.
            let descriptors = fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten();
            descriptors
                .map(|fd| fs::read_link(fd.path()))
                .any(|target| target.is_ok_and(|target| target == path))
        };
        if pid == ours || !holds() {
            continue;
        }
        // Check again now that the handle is open, because another process may have been assigned this pid
        // just before.
        if let Ok(handle) = ProcessHandle::of_pid(pid)
            && holds()
            && is_of(&users, pid)
        {
            found.push((pid, handle));
        }
    }
    Ok(found)
}

/// Returns true if all uids of `process` are in `users`. Source: proc(5), `Uid` in `/proc/PID/status`.
fn is_of(users: &[u32], process: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    line.is_some_and(|line| {
        line.split_whitespace().all(|id| id.parse().is_ok_and(|id: u32| users.contains(&id)))
    })
}

/// Waits until all processes have exited or `timeout` has passed.
fn wait_for_all(handles: &[ProcessHandle], timeout: Duration) -> io::Result<()> {
    let end = Instant::now() + timeout;
    for handle in handles {
        wait_readable(handle, end.saturating_duration_since(Instant::now()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signal_is_detected() {
        // The Rust runtime ignores SIGPIPE.
        assert!(is_ignored(libc::SIGPIPE));
        assert!(!is_ignored(libc::SIGALRM));
    }

    #[test]
    fn end_holders_ends_child_with_inherited_lock() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap().join("lock");
        let lock = Lock::take(&path).unwrap();
        // The shell ignores SIGQUIT, so only SIGKILL terminates it.
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' QUIT; read line"]).stdin(std::process::Stdio::piped());
        inherit(&mut command, vec![lock.descriptor().unwrap()]);
        let mut child = command.spawn().unwrap();
        drop((command, lock));
        assert!(Lock::is_held(&path).unwrap());
        let account = rustix::process::geteuid().as_raw();
        assert!(end_holders(&path, account, Duration::from_millis(200)).unwrap());
        assert!(!child.wait().unwrap().success());
        assert!(!Lock::is_held(&path).unwrap());
        assert!(end_holders(&path, account, Duration::ZERO).unwrap());
    }

    #[test]
    fn end_holders_spares_processes_of_other_users() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap().join("lock");
        let lock = Lock::take(&path).unwrap();
        let mut command = Command::new("cat");
        command.stdin(std::process::Stdio::piped()).uid(65_533).gid(65_533);
        inherit(&mut command, vec![lock.descriptor().unwrap()]);
        let mut child = command.spawn().unwrap();
        drop((command, lock));
        assert!(!end_holders(&path, 65_532, Duration::ZERO).unwrap());
        assert!(child.try_wait().unwrap().is_none());
        assert!(end_holders(&path, 65_533, Duration::from_millis(200)).unwrap());
        assert!(!child.wait().unwrap().success());
    }
}
