//! What a child inherits and outlives, and who holds a file open.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal};

use super::dying::wait_until;
use super::handle::ProcessHandle;
use super::poll::wait_readable;
use super::segment::remove_segments;
use crate::Lock;

/// Lets the child of `command` keep `descriptors` open, under the same numbers. Ours stay close-on-exec, so that no
/// other child started meanwhile can catch them. They are closed here when `command` is dropped.
#[allow(unsafe_code)]
pub fn inherit(command: &mut Command, descriptors: Vec<OwnedFd>) {
    let keep = move || {
        for descriptor in &descriptors {
            fcntl_setfd(descriptor, FdFlags::empty())?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes only fcntl(2) calls, which are async-signal-safe, and neither
    // allocates nor locks.
    unsafe { command.pre_exec(keep) };
}

/// Starts the child of `command` in a session of its own: no terminal, and no signal meant for our process group,
/// reaches it.
#[allow(unsafe_code)]
pub fn new_session(command: &mut Command) {
    // SAFETY: setsid(2) is async-signal-safe and the closure does nothing else.
    unsafe { command.pre_exec(|| rustix::process::setsid().map(drop).map_err(Into::into)) };
}

/// Sends `SIGTERM` to the child of `command` when the thread that spawned it ends, by any signal.
///
/// Spawn from the main thread. The kernel forgets it when the child changes its user.
#[allow(unsafe_code)]
pub fn die_with_parent(command: &mut Command) {
    let parent = rustix::process::getpid();
    let die = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
        // The parent may have died before the line above took effect.
        if rustix::process::getppid() == Some(parent) {
            Ok(())
        } else {
            Err(io::Error::other("parent is gone"))
        }
    };
    // SAFETY: prctl(2) and getppid(2) are async-signal-safe; the error allocates only where the child ends anyway.
    unsafe { command.pre_exec(die) };
}

/// Whether `signal` is ignored by us: as `nohup` wants it, and a shell for what it starts in the background.
#[must_use]
pub fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask =
        status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Ends every process of `account`'s, or of our own user's, that holds the lock on the file at `path`: by `SIGQUIT`, and
/// by `SIGKILL` those that are still there after `grace`, and removes the System V segments that they leave. Returns
/// whether the lock is free; we do not count as a holder.
///
/// Others are let be: who holds a descriptor can send it to any process that takes some (unix(7), `SCM_RIGHTS`).
///
/// `path` must be canonical. Sees our user's own processes, or all as root. Reads every `/proc/PID/fd`: milliseconds on
/// a busy machine, so not for the usual path.
#[expect(clippy::let_underscore_must_use, reason = "a holder may have ended since, which is what we want")]
pub fn end_holders(path: &Path, account: u32, grace: Duration) -> io::Result<bool> {
    let mut ended = Vec::new();
    for (signal, patience) in [(Signal::QUIT, grace), (Signal::KILL, grace), (Signal::KILL, grace)] {
        let (pids, holders): (Vec<_>, Vec<_>) = holders(path, account)?.into_iter().unzip();
        if holders.is_empty() {
            break;
        }
        for holder in &holders {
            // It may have ended since; that is what we want.
            let _ = holder.signal(signal);
        }
        wait_for_all(&holders, patience)?;
        ended.extend(pids);
    }
    // A process on its way out hides its files, but still has them, and its memory, for some milliseconds.
    let free = wait_until(|| Ok(!Lock::is_held(path)?))?;
    for creator in ended {
        remove_segments(creator, account)?;
    }
    Ok(free)
}

/// The processes of `account`'s or ours that hold `path` open, with handles.
fn holders(path: &Path, account: u32) -> io::Result<Vec<(Pid, ProcessHandle)>> {
    let ours = rustix::process::getpid();
    let users = [account, rustix::process::geteuid().as_raw()];
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw)
        else {
            continue;
        };
        // Processes end while we look, and others' we may not see: both are no holders that concern us.
        let Ok(handle) = ProcessHandle::of_pid(pid) else { continue };
        let Ok(descriptors) = fs::read_dir(entry.path().join("fd")) else { continue };
        let holds =
            descriptors.flatten().any(|fd| fs::read_link(fd.path()).is_ok_and(|target| target == path));
        if holds && pid != ours && is_of(&users, pid) {
            found.push((pid, handle));
        }
    }
    Ok(found)
}

/// Whether a process is one of `users` in every respect. Source: proc(5), `Uid` in `/proc/PID/status`.
fn is_of(users: &[u32], process: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    line.is_some_and(|line| {
        line.split_whitespace().all(|id| id.parse().is_ok_and(|id: u32| users.contains(&id)))
    })
}

/// Waits until all processes have ended or `patience` is over.
fn wait_for_all(handles: &[ProcessHandle], patience: Duration) -> io::Result<()> {
    let end = Instant::now() + patience;
    for handle in handles {
        wait_readable(handle, end.saturating_duration_since(Instant::now()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_signal_is_seen() {
        // The standard library ignores SIGPIPE for us.
        assert!(is_ignored(libc::SIGPIPE));
        assert!(!is_ignored(libc::SIGALRM));
    }

    #[test]
    fn an_inherited_lock_is_held_by_the_child_alone_and_its_holder_is_ended() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap().join("lock");
        let lock = Lock::take(&path).unwrap();
        // A shell ignores SIGQUIT here: only SIGKILL helps.
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
    fn a_process_of_another_user_is_let_be() {
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
