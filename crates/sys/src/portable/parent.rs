//! Makes a child exit together with its parent, on systems whose kernel can't do so.
//!
//! Each child gets a watcher: a forked process that executes no program and waits for
//! the end of a pipe, the lifeline. Only this process holds the lifeline's write end, so
//! the kernel closes that end whenever this process exits, for example after `SIGKILL`.
//!
//! ```text
//! parent ──── lifeline ────▶ watcher ──── SIGTERM ────▶ child
//! ```
//! The watcher's parent exits immediately, so the watcher isn't a child of the
//! program. Therefore the program neither sees the watcher nor waits for it.

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Mutex;

use crate::posix::process_facts::ProcessState;
use crate::{host, lock};

/// Maximum time that a watcher outlives its child, in milliseconds.
const CHECK_INTERVAL: i32 = 1000;

/// The lifeline of this process. It is never closed.
static LIFELINE: Mutex<Option<(PipeReader, PipeWriter)>> = Mutex::new(None);

/// Makes the child of `command` receive `SIGTERM` when this process ends, even if it was killed by `SIGKILL`.
///
/// Spawning returns an error if the user has reached the limit on processes, or this process the limit on descriptors.
pub fn die_with_parent(command: &mut Command) {
    match lifeline() {
        Ok(lifeline) => end_with(command, lifeline),
        Err(error) => {
            let number = error.raw_os_error().unwrap_or(libc::EMFILE);
            #[allow(unsafe_code)]
            // SAFETY: the closure doesn't make system calls or allocate.
            unsafe {
                command.pre_exec(move || Err(io::Error::from_raw_os_error(number)));
            }
        }
    }
}

/// Returns the read end of the lifeline. Opens the pipe at the first call.
fn lifeline() -> io::Result<RawFd> {
    let mut lifeline = lock(&LIFELINE);
    if lifeline.is_none() {
        *lifeline = Some(io::pipe()?);
    }
    Ok(lifeline.as_ref().map_or(-1, |(reader, _)| reader.as_raw_fd()))
}

/// Makes the child of `command` receive `SIGTERM` when all writers of `lifeline` have closed it.
#[allow(unsafe_code)]
fn end_with(command: &mut Command, lifeline: RawFd) {
    let parent = rustix::process::getpid();
    // SAFETY: the closure only makes async-signal-safe system calls and doesn't allocate.
    unsafe {
        command.pre_exec(move || {
            start_watcher(lifeline)?;
            // Don't execute the program if the parent has exited in the meantime.
            let is_alone = rustix::process::getppid() != Some(parent);
            if is_alone { Err(io::Error::from_raw_os_error(libc::ESRCH)) } else { Ok(()) }
        });
    }
}

/// Starts a watcher for the calling process, which is about to execute a program.
#[allow(unsafe_code)]
fn start_watcher(lifeline: RawFd) -> io::Result<()> {
    let child = std::process::id();
    let started = host::process(child).map(|process| process.started);
    // SAFETY: these calls have no memory preconditions, and both new processes only make system calls.
    unsafe {
        // A signal handler of pgfresh would swallow the watcher's signal until the program runs.
        if !crate::is_ignored(libc::SIGTERM) {
            libc::signal(libc::SIGTERM, libc::SIG_DFL);
        }
        // The intermediate process exits immediately, so that the watcher isn't a child of the program.
        match libc::fork() {
            -1 => Err(io::Error::last_os_error()),
            0 => match libc::fork() {
                0 => watch(child, started, lifeline),
                watcher => libc::_exit(i32::from(watcher < 0)),
            },
            between => {
                let mut status = 0;
                while libc::waitpid(between, &raw mut status, 0) < 0 {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
                if status == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EAGAIN)) }
            }
        }
    }
}

/// Waits for the end of `lifeline` or of the process `child`, and exits. If the lifeline ends first, sends `SIGTERM` to
/// `child`.
#[allow(unsafe_code)]
fn watch(child: u32, started: Option<u64>, lifeline: RawFd) -> ! {
    // SAFETY: these calls have no memory preconditions, except poll(2), which gets exactly one descriptor.
    unsafe {
        libc::setsid();
        // Keep only the lifeline open. Otherwise, the watcher would hold
        // locks, and the write ends of pipes that the parent reads.
        libc::dup2(lifeline, 0);
        host::close_from(1);
        libc::chdir(c"/".as_ptr());
        let mut waited = libc::pollfd { fd: 0, events: libc::POLLIN, revents: 0 };
        loop {
            let ready = libc::poll(&raw mut waited, 1, CHECK_INTERVAL);
            if !is_running(child, started) {
                libc::_exit(0);
            }
            if ready > 0 {
                libc::kill(child.cast_signed(), libc::SIGTERM);
                libc::_exit(0);
            }
        }
    }
}

/// Returns true if the process `child` that started at `started` hasn't exited
/// yet. If the start time is unknown, returns true for any process with this pid.
#[allow(unsafe_code)]
fn is_running(child: u32, started: Option<u64>) -> bool {
    match (host::process(child), started) {
        (Some(process), Some(started)) => process.started == started && process.state != ProcessState::Ended,
        // SAFETY: the call has no memory preconditions. Signal 0 only checks whether the process exists.
        (_, None) => unsafe { libc::kill(child.cast_signed(), 0) == 0 },
        (None, Some(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;
    use std::time::Duration;

    use super::*;
    use crate::{ProcessHandle, wait_readable};

    #[test]
    fn child_ends_with_the_lifeline() {
        let (reader, writer) = io::pipe().unwrap();
        let mut command = Command::new("cat");
        end_with(command.stdin(Stdio::piped()).stdout(Stdio::piped()), reader.as_raw_fd());
        let mut cat = command.spawn().unwrap();
        let _input = cat.stdin.take();
        let handle = ProcessHandle::of(&cat).unwrap();
        assert!(!wait_readable(&handle, Duration::from_millis(50)).unwrap());
        drop(writer);
        assert_eq!(cat.wait().unwrap().signal(), Some(libc::SIGTERM));
    }

    #[test]
    fn watcher_keeps_no_descriptor_open() {
        let (reader, mut writer) = io::pipe().unwrap();
        let (output, input) = io::pipe().unwrap();
        let mut command = Command::new("true");
        command.stdout(input);
        end_with(&mut command, reader.as_raw_fd());
        assert!(command.status().unwrap().success());
        drop(command);
        assert!(wait_readable(&output, Duration::from_mins(1)).unwrap(), "no process writes any more");
        // Once the pipe has no reader, the watcher has exited.
        drop(reader);
        while io::Write::write(&mut writer, b"x").is_ok() {
            std::thread::yield_now();
        }
    }
}
