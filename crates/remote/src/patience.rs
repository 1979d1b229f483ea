//! How long a remote may take. What it costs when it fails is bounded; while it makes progress, it may take what a build would.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::error::{RemoteError, StoreError};

/// What a transfer may cost beyond what it saves.
pub(crate) const MARGIN: Duration = Duration::from_secs(3);
/// How often progress is told.
pub(crate) const TICK: Duration = Duration::from_millis(50);
/// How long bytes are counted before the rest is projected.
const MEASURED: Duration = Duration::from_secs(1);

/// The bounds on the waits for a remote.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Until it is known what there is: the head and the tree.
    pub(crate) answer: Duration,
    /// Without a byte.
    pub(crate) stall: Duration,
    /// Whether a transfer is given up that takes longer than to build the template.
    pub(crate) projects: bool,
}

impl Patience {
    /// On the way to a server: a remote that fails costs 3 s at most.
    pub const ON_THE_WAY: Self =
        Self { answer: Duration::from_secs(2), stall: Duration::from_millis(900), projects: true };
    /// After a build, before the command: what may wait two times waits half as long.
    pub const AFTER_A_BUILD: Self =
        Self { answer: Duration::from_millis(1400), stall: Duration::from_millis(1400), projects: true };
    /// Where a user has asked for the transfer itself.
    pub const ASKED_FOR: Self =
        Self { answer: Duration::from_secs(20), stall: Duration::from_secs(10), projects: false };
}

/// The result of `work`, or an error once `after` is over.
pub(crate) async fn within<T>(
    after: Duration,
    (verb, object): (&'static str, &str),
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, RemoteError> {
    match tokio::time::timeout(after, work).await {
        Ok(result) => result.map_err(|error| error.attempt(verb, object)),
        Err(_) => Err(RemoteError::Silent { verb, object: object.to_owned(), after }),
    }
}

/// What is absent is no error.
pub(crate) async fn present<T>(
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<Option<T>, StoreError> {
    match work.await {
        Err(StoreError::Absent) => Ok(None),
        other => other.map(Some),
    }
}

/// How fast a transfer is: counted by those who wait for the network, not while they write.
#[derive(Debug)]
pub(crate) struct Pace {
    total: u64,
    /// How many wait at once.
    waiters: u64,
    done: AtomicU64,
    /// The sum over all waiters, in microseconds.
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

    /// Counts what came of a wait that `begun` then.
    pub(crate) fn count(&self, bytes: usize, begun: Instant) {
        self.done.fetch_add(bytes as u64, Ordering::Relaxed);
        let waited = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.waited.fetch_add(waited, Ordering::Relaxed);
    }

    /// Seconds that the rest will take, once there is something to go by.
    fn left(&self) -> Option<f64> {
        let waited = Duration::from_micros(self.waited.load(Ordering::Relaxed) / self.waiters);
        if waited < MEASURED {
            return None;
        }
        #[allow(clippy::cast_precision_loss)]
        let (done, rest) = (self.done() as f64, self.total.saturating_sub(self.done()) as f64);
        Some(waited.as_secs_f64() * rest / done.max(1.0))
    }

    /// An error if the rest takes longer than what it saves, which is `took`.
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
    fn a_transfer_is_given_up_once_the_rest_takes_longer_than_a_build() {
        let second = Duration::from_secs(1);
        // 1 B/s, of which nothing is known before a second has passed.
        let pace = Pace::new(1000, 1);
        assert!(after(&pace, 1, second / 2).is_ok());
        assert!(matches!(after(&pace, 1, second), Err(RemoteError::Slow { .. })));
        // 100 B/s.
        let pace = Pace::new(1000, 1);
        for _ in 0..10 {
            assert!(after(&pace, 100, second).is_ok());
        }
        // Two that wait at once are twice as fast.
        let pace = Pace::new(2000, 2);
        assert!(after(&pace, 100, second).is_ok() && after(&pace, 100, second).is_ok());
    }
}
