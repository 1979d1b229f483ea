//! Limits how long operations on a remote can take.
//!
//! A remote is only useful as long as it saves time. A failing remote therefore costs at
//! most a few seconds, and a transfer must not take much longer than building the template.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::error::{RemoteError, StoreError};

/// How much longer than the template's build a transfer can take.
pub(crate) const MARGIN: Duration = Duration::from_secs(3);
/// Interval between progress reports.
pub(crate) const TICK: Duration = Duration::from_millis(50);
/// Minimum time before pgfresh estimates how long the rest of a
/// transfer will take. Only time spent waiting for the network counts.
const MEASURED: Duration = Duration::from_secs(1);

/// The timeouts for operations on a remote.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// Timeout for looking up a template, i.e., for reading its head and its tree.
    pub(crate) answer: Duration,
    /// Maximum time without receiving a byte.
    pub(crate) stall: Duration,
    /// True if a transfer that would take longer than a build should be aborted.
    pub(crate) projects: bool,
}

impl Timeouts {
    /// Timeouts for a fetch during server startup. A failing remote costs at most 3 s.
    pub const ON_THE_WAY: Self =
        Self { answer: Duration::from_secs(2), stall: Duration::from_millis(900), projects: true };
    /// Timeouts for a push between a build and the user's command. They are shorter because a failing push can run into
    /// two of them.
    pub const AFTER_A_BUILD: Self =
        Self { answer: Duration::from_millis(1400), stall: Duration::from_millis(1400), projects: true };
    /// Timeouts for a transfer that the user requested.
    pub const ASKED_FOR: Self =
        Self { answer: Duration::from_secs(20), stall: Duration::from_secs(10), projects: false };
}

/// A transfer's limits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TransferBounds {
    pub(crate) timeouts: Timeouts,
    /// How long building the template took. A transfer that takes longer saves no time.
    pub(crate) took: Duration,
}

/// Runs `work` with the timeout `after`. The error message is "could not `verb` `object`".
pub(crate) async fn within<T>(
    after: Duration,
    verb: &'static str,
    object: &str,
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, RemoteError> {
    match tokio::time::timeout(after, work).await {
        Ok(result) => result.map_err(|error| error.attempt(verb, object)),
        Err(_) => Err(RemoteError::Silent { verb, object: object.to_owned(), after }),
    }
}

/// Converts [`StoreError::Absent`] to `None`.
pub(crate) async fn present<T>(
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<Option<T>, StoreError> {
    match work.await {
        Err(StoreError::Absent) => Ok(None),
        other => other.map(Some),
    }
}

/// Measures a transfer's speed. Time spent waiting for the network counts, but time spent writing to disk doesn't.
#[derive(Debug)]
pub(crate) struct Pace {
    total: u64,
    /// The number of threads waiting in parallel.
    waiters: u64,
    done: AtomicU64,
    /// Total time all threads have waited, in microseconds.
    waited: AtomicU64,
}

impl Pace {
    pub(crate) fn new(total: u64, waiters: usize) -> Self {
        Self { total, waiters: waiters.max(1) as u64, done: AtomicU64::new(0), waited: AtomicU64::new(0) }
    }

    pub(crate) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Records a completed wait for the network, which started at `begun` and yielded `bytes` bytes.
    pub(crate) fn count(&self, bytes: usize, begun: Instant) {
        self.done.fetch_add(bytes as u64, Ordering::Relaxed);
        let waited = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.waited.fetch_add(waited, Ordering::Relaxed);
    }

    /// Estimates how many seconds the rest of the transfer will take. Returns `None` until the threads have waited for
    /// the network for [`MEASURED`].
    fn left(&self) -> Option<f64> {
        let waited = Duration::from_micros(self.waited.load(Ordering::Relaxed) / self.waiters);
        if waited < MEASURED {
            return None;
        }
        #[allow(clippy::cast_precision_loss)]
        let (done, rest) = (self.done() as f64, self.total.saturating_sub(self.done()) as f64);
        Some(waited.as_secs_f64() * rest / done.max(1.0))
    }

    /// Returns an error if the rest of the transfer would take longer than `took` (the build time) plus [`MARGIN`].
    pub(crate) fn expect_gain(&self, took: Duration) -> Result<(), RemoteError> {
        match self.left() {
            Some(left) if left > (took + MARGIN).as_secs_f64() => {
                Err(RemoteError::Slow { left, took: took.as_secs_f64() })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(pace: &Pace, bytes: usize, waited: Duration) -> Result<(), RemoteError> {
        pace.count(bytes, Instant::now().checked_sub(waited).unwrap());
        pace.expect_gain(Duration::from_secs(10))
    }

    #[test]
    fn transfer_stops_when_rest_outlasts_a_build() {
        let second = Duration::from_secs(1);
        // The speed is 1 B/s. There is no estimate during the first second.
        let pace = Pace::new(1000, 1);
        assert!(after(&pace, 1, second / 2).is_ok());
        assert!(matches!(after(&pace, 1, second), Err(RemoteError::Slow { .. })));
        // The speed is 100 B/s.
        let pace = Pace::new(1000, 1);
        for _ in 0..10 {
            assert!(after(&pace, 100, second).is_ok());
        }
        // Two parallel threads are twice as fast.
        let pace = Pace::new(2000, 2);
        assert!(after(&pace, 100, second).is_ok() && after(&pace, 100, second).is_ok());
    }
}
