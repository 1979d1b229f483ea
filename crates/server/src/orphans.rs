//! Ends processes that outlive a killed postmaster. These are, for example, backends that are stopped or that
//! are executing a long statement.
//!
//! Otherwise they would keep their sessions open and their clients waiting. Once they have ended, nothing
//! waits for the server any longer.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sys::ProcessHandle;

/// How long backends have to notice by themselves that their postmaster has ended.
const GRACE: Duration = Duration::from_millis(100);
/// Maximum duration of a single sleep of the thread.
const MAX_SLEEP: Duration = Duration::from_hours(24);

/// Ends all processes of a server shortly after its postmaster has ended. `postmaster` is the postmaster's
/// handle. The processes hold `lock` and run as `account`, and `alive` becomes readable once they have ended.
/// After an orderly shutdown the postmaster is the last process, so there is nothing to do.
///
/// Wait for this thread before starting another server with the same lock. Otherwise the thread would end
/// that server.
pub(crate) fn end_after_postmaster(
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
            // The guard will try again.
            if let Err(error) = sys::end_holders(&lock, account, Duration::ZERO) {
                tracing::warn!(%error, "could not end the processes of a server without its postmaster");
            }
        }
    })
}

/// Calls `then` when the other end of `alive` is closed.
pub(crate) fn notify_at_end(alive: &OwnedFd, then: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let alive = alive.try_clone()?;
    thread::Builder::new().name("end of server".to_owned()).spawn(move || {
        wait_for_end(&alive);
        then();
    })?;
    Ok(())
}

fn wait_for_end(descriptor: impl AsFd) {
    while !sys::wait_readable(&descriptor, MAX_SLEEP).unwrap_or(true) {}
}
