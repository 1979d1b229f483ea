//! What a child inherits and outlives, and who holds a file open.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal};

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

/// Sends `SIGTERM` to the child of `command` when the thread that spawned it ends, by whatever signal.
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

/// The processes that hold the file at `path` open, as far as we may look: our user's own, or all as root.
///
/// `path` must be canonical. Reads every `/proc/PID/fd`: milliseconds on a busy machine, so not for the usual path.
pub fn holders(path: &Path) -> io::Result<Vec<Pid>> {
    let ours = rustix::process::getpid();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw)
        else {
            continue;
        };
        // Processes end while we look, and others' we may not see: both are no holders that concern us.
        let Ok(descriptors) = fs::read_dir(entry.path().join("fd")) else { continue };
        let holds =
            descriptors.flatten().any(|fd| fs::read_link(fd.path()).is_ok_and(|target| target == path));
        if holds && pid != ours {
            found.push(pid);
        }
    }
    Ok(found)
}

/// Ends `pid` by `SIGKILL`, or asks a postmaster for an immediate shutdown by `SIGQUIT` where `at_once` is false.
/// A process that is already gone is no error.
pub fn kill(pid: Pid, at_once: bool) -> io::Result<()> {
    match rustix::process::kill_process(pid, if at_once { Signal::KILL } else { Signal::QUIT }) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Lock;

    #[test]
    fn an_inherited_lock_is_held_by_the_child_alone_and_its_holder_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap().join("lock");
        let lock = Lock::take(&path).unwrap();
        let mut command = Command::new("sleep");
        command.arg("60");
        inherit(&mut command, vec![lock.descriptor().unwrap()]);
        let mut child = command.spawn().unwrap();
        drop((command, lock));
        assert!(Lock::is_held(&path).unwrap());
        let pid = Pid::from_child(&child);
        assert_eq!(holders(&path).unwrap(), [pid]);
        kill(pid, true).unwrap();
        child.wait().unwrap();
        assert!(!Lock::is_held(&path).unwrap());
        assert!(holders(&path).unwrap().is_empty());
    }
}
