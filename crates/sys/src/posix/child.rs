//! Configures what a child process inherits.

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::{FdFlags, fcntl_setfd};

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
