//! What outlives a postmaster that was killed: backends that are stopped, or in the middle of a long statement.
//!
//! They would keep their sessions open, and clients that wait for an answer waiting. So they are ended, and each wait for the
//! server ends with them, wherever it is.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sys::ProcessHandle;

/// How long backends may take to see by themselves that their postmaster is gone.
const GRACE: Duration = Duration::from_millis(100);
/// How long the thread sleeps at once.
const LONGEST_SLEEP: Duration = Duration::from_hours(24);

/// Ends all processes of a server soon after its postmaster, which `postmaster` is a handle of. `alive` is readable once
/// they are gone, `lock` is the file that they hold, `account` whom they run as. An orderly end leaves none: then the
/// postmaster is the last.
///
/// Wait for the thread before another server is started on the same lock: it would be ended, too.
pub(crate) fn end_with(
    postmaster: &ProcessHandle,
    alive: &OwnedFd,
    lock: &Path,
    account: u32,
) -> io::Result<JoinHandle<()>> {
    let postmaster = postmaster.as_fd().try_clone_to_owned()?;
    let (alive, lock) = (alive.try_clone()?, lock.canonicalize()?);
    thread::Builder::new().name("orphans".to_owned()).spawn(move || {
        wait_for_end(&postmaster);
        if !sys::wait_readable(&alive, GRACE).unwrap_or(false) {
            // What cannot be ended now is for the guard.
            if let Err(error) = sys::end_holders(&lock, account, Duration::ZERO) {
                tracing::warn!(%error, "could not end the processes of a server without its postmaster");
            }
        }
    })
}

/// Calls `then` when the other end of `alive` is closed.
pub(crate) fn tell_of_end(alive: &OwnedFd, then: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let alive = alive.try_clone()?;
    thread::Builder::new().name("end of server".to_owned()).spawn(move || {
        wait_for_end(&alive);
        then();
    })?;
    Ok(())
}

fn wait_for_end(descriptor: impl AsFd) {
    while !sys::wait_readable(&descriptor, LONGEST_SLEEP).unwrap_or(true) {}
}
