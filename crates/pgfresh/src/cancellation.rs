//! Lets a signal cancel work without leaving files behind. Used for work that no guard covers; a guard is a process
//! that cleans up after pgfresh.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

use crate::failure::Failure;

/// Signals that end pgfresh or its command.
pub(crate) const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Returns the signals in `signals` that the process doesn't already ignore.
pub(crate) fn heeded(signals: &[i32]) -> impl Iterator<Item = i32> + Clone {
    signals.iter().copied().filter(|&signal| !sys::is_ignored(signal))
}

/// Describes why pgfresh can't handle signals.
pub(crate) fn cannot_listen(error: &io::Error) -> Failure {
    Failure::new(format!("could not listen for signals: {error}"))
}

/// Makes each of `signals` kill pgfresh while the returned flag is true, unless the process already ignores it.
pub(crate) fn die_by(signals: &[i32]) -> Result<Arc<AtomicBool>, Failure> {
    let dies = Arc::new(AtomicBool::new(true));
    for signal in heeded(signals) {
        flag::register_conditional_default(signal, Arc::clone(&dies))
            .map_err(|error| cannot_listen(&error))?;
    }
    Ok(dies)
}

/// Returns a flag that each SIGINT, SIGTERM and SIGHUP sets. None of these signals kills the process, however many
/// arrive, but SIGQUIT and SIGKILL do. A second signal isn't a request to exit immediately because, for example, GNU
/// timeout signals both the process and its group.
pub(crate) fn interruption_flag() -> Result<Arc<AtomicBool>, Failure> {
    let interrupted = Arc::default();
    for signal in heeded(&SIGNALS) {
        flag::register(signal, Arc::clone(&interrupted)).map_err(|error| cannot_listen(&error))?;
    }
    Ok(interrupted)
}

/// Runs `work`. The first SIGINT, SIGTERM or SIGHUP sets the flag passed to `work`, and the process exits once `work`
/// has returned. A second signal kills the process immediately.
pub(crate) fn cancellable<T, E: Into<Failure>>(
    work: impl FnOnce(&AtomicBool) -> Result<T, E>,
) -> Result<T, Failure> {
    let (cancelled, received) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    for signal in heeded(&SIGNALS) {
        register(signal, &cancelled, &received).map_err(|error| cannot_listen(&error))?;
    }
    let result = work(&cancelled);
    // The work is done, so from here on even the first signal kills the process.
    cancelled.store(true, Ordering::Relaxed);
    if let Ok(signal @ 1..) = i32::try_from(received.load(Ordering::Relaxed)) {
        low_level::emulate_default_handler(signal)
            .map_err(|error| Failure::new(format!("could not end by signal {signal}: {error}")))?;
    }
    result.map_err(Into::into)
}

/// Registers three handlers in the order they must run in. On the first signal, the flag is still false, so the first
/// handler lets the process continue, the second records the signal, and the third sets the flag. On the second
/// signal, the flag is true, so the first handler kills the process.
fn register(signal: i32, cancelled: &Arc<AtomicBool>, received: &Arc<AtomicUsize>) -> io::Result<()> {
    flag::register_conditional_default(signal, Arc::clone(cancelled))?;
    flag::register_usize(signal, Arc::clone(received), usize::try_from(signal).unwrap_or_default())?;
    flag::register(signal, Arc::clone(cancelled)).map(drop)
}
