//! Terminates the processes that hold a file open.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::handle::ProcessHandle;
use super::poll::wait_readable;
use super::polling::poll_until;
use super::segments::remove_segments;
use crate::{Lock, host};

/// Terminates every process that has the lock file `path` open and belongs to `account` or to our own user.
/// Sends `SIGQUIT`, then after `grace` sends `SIGKILL` to the processes that remain, and finally removes
/// their System V segments. Returns true if the lock is free afterwards. Never terminates the calling
/// process.
///
/// Processes of other users are left alone. They may not belong to the server at all, since a process can
/// send its open files to any other process over a socket (unix(7), `SCM_RIGHTS`).
///
/// `path` must be canonical. Only root can see the open files of other users' processes. The search examines the
/// open files of every process, which takes milliseconds on a busy machine, so don't call this function during
/// normal operation.
///
/// # Errors
/// Returns an error if the system doesn't list its processes. Processes that end during the search cause no error.
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
    let ours = std::process::id();
    let users = [account, rustix::process::geteuid().as_raw()];
    let mut found = Vec::new();
    for process in host::pids()?.into_iter().filter(|process| *process != ours) {
        let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) else { continue };
        if !host::has_open(process, path) {
            continue;
        }
        // Check again now that the handle is open, because another process may have been assigned this pid
        // just before.
        if let Ok(handle) = ProcessHandle::of_pid(pid)
            && host::has_open(process, path)
            && host::users_of(process).is_some_and(|all| all.iter().all(|user| users.contains(user)))
        {
            found.push((pid, handle));
        }
    }
    Ok(found)
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
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;
    use crate::inherit;

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
