//! Makes a child exit together with its parent.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::Signal;

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
