//! Ends the processes that outlive a killed postmaster: backends that are stopped, or in the middle of a long statement.
//!
//! They would keep their sessions open, and their clients waiting. After their end, every wait for the server ends as well.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sys::ProcessHandle;

/// Time for backends to notice the end of their postmaster by themselves.
const GRACE: Duration = Duration::from_millis(100);
/// Longest single sleep of the thread.
const LONGEST_SLEEP: Duration = Duration::from_hours(24);

/// Ends all processes of a server soon after its postmaster, whose handle is `postmaster`. The processes hold `lock` and run as
/// `account`; `alive` is readable once they have ended. After an orderly shutdown the postmaster ends last, so none is left.
///
/// Wait for the thread before you start another server on the same lock, because the thread would end that one, too.
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
            // The guard tries again.
            if let Err(error) = sys::end_holders(&lock, account, Duration::ZERO) {
                tracing::warn!(%error, "could not end the processes of a server without its postmaster");
            }
        }
    })
}

/// Calls `then` when the other end of `alive` closes.
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
