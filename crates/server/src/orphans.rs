//! Terminates processes that outlive a killed postmaster, such as stopped backends and backends in the middle
//! of a long statement. Otherwise, these processes would keep their sessions open and their clients waiting.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sys::ProcessHandle;

/// How long backends have to notice on their own that their postmaster is gone.
const GRACE: Duration = Duration::from_millis(100);
/// Maximum duration of a single wait in the thread.
const MAX_SLEEP: Duration = Duration::from_hours(24);

/// Starts a thread that waits for the postmaster to exit and then terminates all of its server's other
/// processes. `postmaster` is the postmaster's handle. The processes hold `lock` and run under `account`, and
/// `alive` becomes readable after the last of them has exited. After an orderly shutdown there is nothing to
/// do, because the postmaster exits last.
///
/// Join this thread before starting another server with the same lock, otherwise the thread would terminate
/// that server too.
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
            if let Err(error) = sys::end_holders(&lock, account) {
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
