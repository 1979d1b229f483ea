//! Counts the failures of a task, and determines when to try again and when to refuse the requests that wait for it.

use std::time::{Duration, Instant};

use super::RETRY;

/// How long requests wait for a task after its first failure, provided that it has failed [`ATTEMPTS`] times by then.
const FAILING_TIMEOUT: Duration = Duration::from_secs(5);
/// How many times a task must fail before requests stop waiting for it.
const ATTEMPTS: u32 = 3;
/// How long a request waits for the next attempts of a task that has failed before. An attempt may be slow.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);

/// Failures of a task since its last success.
#[derive(Debug, Clone, Copy)]
pub(super) struct Failures {
    /// When the first attempt failed.
    pub(super) first: Instant,
    /// When the last attempt failed.
    pub(super) last: Instant,
    count: u32,
}

impl Failures {
    /// Adds a failure to those of a task, of which there may be none yet.
    pub(super) fn add(failures: &mut Option<Self>, now: Instant) -> Self {
        let (first, count) = failures.map_or((now, 0), |before| (before.first, before.count));
        *failures.insert(Self { first, last: now, count: count.saturating_add(1) })
    }

    /// Returns how long to wait before the next attempt, at most `longest`. Each failure doubles the delay.
    pub(super) fn pause(self, longest: Duration) -> Duration {
        (RETRY * 2_u32.saturating_pow(self.count - 1)).min(longest)
    }

    /// Returns true if the task has failed for so long that requests no longer wait for it.
    pub(super) fn are_lasting(self, now: Instant) -> bool {
        self.count >= ATTEMPTS && now >= self.first + FAILING_TIMEOUT
    }

    /// Returns when to refuse a request that has waited for the task since `since`.
    pub(super) fn refuse_at(self, since: Instant) -> Instant {
        if since <= self.last && self.count >= ATTEMPTS {
            self.first + FAILING_TIMEOUT
        } else {
            since.max(self.first) + ATTEMPT_TIMEOUT
        }
    }
}
