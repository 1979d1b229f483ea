//! Work without a guard that a signal can cancel, with no leftovers.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

use crate::failure::Failure;

/// Runs `work`. The first SIGINT, SIGTERM or SIGHUP sets the flag for `work`, and ends the process once `work` has
/// returned. A second signal ends the process at once.
pub(crate) fn cancellable<T, E: Into<Failure>>(
    work: impl FnOnce(&AtomicBool) -> Result<T, E>,
) -> Result<T, Failure> {
    let (cancelled, received) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|&signal| !sys::is_ignored(signal)) {
        heed(signal, &cancelled, &received)
            .map_err(|error| Failure::new(format!("could not listen for signals: {error}")))?;
    }
    let result = work(&cancelled);
    // From now on the first signal ends the process.
    cancelled.store(true, Ordering::Relaxed);
    if let Ok(signal @ 1..) = i32::try_from(received.load(Ordering::Relaxed)) {
        low_level::emulate_default_handler(signal)
            .map_err(|error| Failure::new(format!("could not end by signal {signal}: {error}")))?;
    }
    result.map_err(Into::into)
}

/// Registers handlers in this order: the first signal finds the flag down, notes itself and puts it up. The second
/// finds it up.
fn heed(signal: i32, cancelled: &Arc<AtomicBool>, received: &Arc<AtomicUsize>) -> io::Result<()> {
    flag::register_conditional_default(signal, Arc::clone(cancelled))?;
    flag::register_usize(signal, Arc::clone(received), usize::try_from(signal).unwrap_or_default())?;
    flag::register(signal, Arc::clone(cancelled)).map(drop)
}
