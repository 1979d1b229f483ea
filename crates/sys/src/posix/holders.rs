//! Terminates the processes that hold a file open.

use std::collections::HashSet;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::handle::ProcessHandle;
use super::poll::wait_readable;
use super::polling::poll_until;
use super::segments::remove_segments;
use crate::{Lock, host};

/// Number of consecutive unsuccessful searches that prove that only exiting processes still hold the file.
/// One search isn't enough, because a child that starts during a search shows up only in the next one.
const ENOUGH_VAIN_SEARCHES: u32 = 2;

/// Sends `SIGQUIT` to the processes that have the lock file `path` open, and waits up to `grace` until they have
/// exited. With `only`, sends it to that process alone, if it has the file open. Like [`end_holders`], signals only
/// processes of `account` and of our own user, never signals the calling process, and needs a canonical `path`.
///
/// # Errors
/// Returns an error if the system doesn't list its processes, or if the wait fails.
#[expect(clippy::let_underscore_must_use, reason = "a holder may have ended since, which is what we want")]
pub fn ask_holders_to_quit(path: &Path, account: u32, only: Option<Pid>, grace: Duration) -> io::Result<()> {
    let mut asked = holders(path, account)?;
    asked.retain(|holder| only.is_none_or(|only| only == holder.pid()));
    for holder in &asked {
        let _ = holder.signal(Signal::QUIT);
    }
    wait_for_all(&asked, grace)
}

/// Sends `SIGQUIT` to the server that listens on the unix socket `socket`, and kills it if it hasn't ended
/// after `grace`. Doesn't need the process table. Signals only a process of `account` or of our own user.
/// Does nothing if a process of any other user listens, or if the system can't tell which process listens.
///
/// # Errors
/// Returns an error if waiting for the server fails.
#[expect(clippy::let_underscore_must_use, reason = "the server may have ended since, which is what we want")]
pub fn end_listener(socket: &Path, account: u32, grace: Duration) -> io::Result<()> {
    let listener = || {
        let peer = host::peer(&UnixStream::connect(socket).ok()?).ok()?;
        peer.process.filter(|_| users(account).contains(&peer.user))
    };
    // Ask again now that the handle is open, because the server could have ended just before, and another process
    // could have been assigned its pid.
    let server = listener()
        .and_then(|pid| ProcessHandle::of_pid(pid).ok())
        .filter(|server| listener() == Some(server.pid()));
    let Some(server) = server else { return Ok(()) };
    let _ = server.signal(Signal::QUIT);
    if !wait_readable(&server, grace)? {
        server.kill();
    }
    Ok(())
}

/// Kills every process that has the lock file `path` open and belongs to `account` or to our own user, and then
/// removes their System V segments. Returns true once the lock is free, and false if a process still holds it after
/// 10 s. Never kills the calling process.
///
/// Spares processes of other users. They might not belong to the server at all, because a
/// process can send its open files to any other process over a socket (unix(7), `SCM_RIGHTS`).
///
/// `path` must be canonical. Only root can see the open files of other users' processes. The search examines the
/// open files of every process, which takes milliseconds on a busy machine, so don't call this function during
/// normal operation.
///
/// # Errors
/// Returns an error if [`remove_segments`] fails. Processes that exit during the search don't cause an error.
#[expect(clippy::let_underscore_must_use, reason = "a holder may have ended since, which is what we want")]
pub fn end_holders(path: &Path, account: u32) -> io::Result<bool> {
    let mut ended = HashSet::new();
    let mut vain_searches = 0;
    let free = poll_until(|| {
        if !Lock::is_held(path)? {
            return Ok(true);
        }
        // Only exiting processes still hold the file: the kernel no longer lists their open files,
        // but they retain the files and their memory for a few milliseconds. Wait for them.
        if vain_searches == ENOUGH_VAIN_SEARCHES {
            return Ok(false);
        }
        // Stop all holders first. Otherwise, one holder could react to the end of another
        // before its own signal arrives. For example, initdb removes the pid file of a
        // killed server. Without a process table, all holders must exit on their own.
        let holders = holders(path, account).unwrap_or_default();
        for signal in [Signal::STOP, Signal::KILL] {
            for holder in &holders {
                let _ = holder.signal(signal);
            }
        }
        vain_searches = if holders.is_empty() { vain_searches + 1 } else { 0 };
        ended.extend(holders.iter().map(ProcessHandle::pid));
        Ok(false)
    })?;
    for creator in ended {
        remove_segments(creator, account)?;
    }
    Ok(free)
}

/// Returns the processes that have `path` open and belong to `account` or to our user.
fn holders(path: &Path, account: u32) -> io::Result<Vec<ProcessHandle>> {
    let ours = std::process::id();
    let users = users(account);
    let mut found = Vec::new();
    for process in host::pids()?.into_iter().filter(|process| *process != ours) {
        if !host::has_open(process, path) {
            continue;
        }
        // Check again now that the handle is open, because another process may have been assigned this pid
        // just before.
        if let Some(handle) = ProcessHandle::of_number(process)
            && host::has_open(process, path)
            && host::users_of(process).is_some_and(|all| all.iter().all(|user| users.contains(user)))
        {
            found.push(handle);
        }
    }
    Ok(found)
}

/// Returns the users whose processes we may end for a server of `account`.
fn users(account: u32) -> [u32; 2] {
    [account, rustix::process::geteuid().as_raw()]
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
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::Command;

    use super::*;
    use crate::inherit;

    #[test]
    fn end_holders_ends_child_with_inherited_lock() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap().join("lock");
        let lock = Lock::take(&path).unwrap();
        // The shell ignores SIGQUIT, which only `ask_holders_to_quit` sends.
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' QUIT; read line"]).stdin(std::process::Stdio::piped());
        inherit(&mut command, vec![lock.descriptor().unwrap()]);
        let mut child = command.spawn().unwrap();
        drop((command, lock));
        assert!(Lock::is_held(&path).unwrap());
        let account = rustix::process::geteuid().as_raw();
        assert!(end_holders(&path, account).unwrap());
        assert!(!child.wait().unwrap().success());
        assert!(!Lock::is_held(&path).unwrap());
        assert!(end_holders(&path, account).unwrap());
    }

    #[test]
    fn only_named_holder_is_asked_to_quit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap().join("lock");
        let lock = Lock::take(&path).unwrap();
        let spawn = || {
            let mut command = Command::new("sleep");
            inherit(command.arg("600"), vec![lock.descriptor().unwrap()]);
            command.spawn().unwrap()
        };
        let (mut named, mut other) = (spawn(), spawn());
        let account = rustix::process::geteuid().as_raw();
        ask_holders_to_quit(&path, account, Some(Pid::from_child(&named)), Duration::from_mins(1)).unwrap();
        assert_eq!(named.wait().unwrap().signal(), Some(libc::SIGQUIT));
        assert!(other.try_wait().unwrap().is_none());
        ask_holders_to_quit(&path, account, None, Duration::from_mins(1)).unwrap();
        assert_eq!(other.wait().unwrap().signal(), Some(libc::SIGQUIT));
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
        assert!(!end_holders(&path, 65_532).unwrap());
        assert!(child.try_wait().unwrap().is_none());
        assert!(end_holders(&path, 65_533).unwrap());
        assert!(!child.wait().unwrap().success());
    }
}
