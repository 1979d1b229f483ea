//! Detects whether other programs are competing for the calling thread's processor.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Minimum interval between two measurements.
const INTERVAL: Duration = Duration::from_millis(2);
/// A processor counts as contended if the thread spent more than `1 / PARTS` of the interval waiting for it.
const PARTS: u32 = 4;

/// Measures how long the calling thread waits for a processor. The kernel counts these waits per thread, so the load of
/// other containers on the machine doesn't matter unless it delays this thread.
#[derive(Debug)]
pub(crate) struct Contention(Cell<Measurement>);

#[derive(Debug, Clone, Copy)]
struct Measurement {
    at: Instant,
    /// Total time the thread has spent waiting for a processor. `None` if the kernel doesn't record it.
    delay: Option<Duration>,
}

impl Measurement {
    fn now() -> Self {
        Self { at: Instant::now(), delay: sys::run_delay() }
    }

    /// Returns true if the thread spent a large part of the interval between the two measurements waiting for a
    /// processor.
    fn is_delayed_since(&self, before: &Self) -> bool {
        let (Some(delay), Some(earlier)) = (self.delay, before.delay) else { return false };
        delay.saturating_sub(earlier) * PARTS > self.at.saturating_duration_since(before.at)
    }
}

impl Contention {
    /// Starts measuring the calling thread.
    pub(crate) fn begin() -> Self {
        Self(Cell::new(Measurement::now()))
    }

    /// Returns true if other programs have competed for this thread's processor since the last measurement, and false
    /// if that measurement is too recent to take another.
    pub(crate) fn is_felt(&self) -> bool {
        let before = self.0.get();
        if before.at.elapsed() < INTERVAL {
            return false;
        }
        let now = Measurement::now();
        self.0.set(now);
        now.is_delayed_since(&before)
    }

    /// Starts a new interval after a pause.
    pub(crate) fn restart(&self) {
        self.0.set(Measurement::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contention_is_a_quarter_of_the_time() {
        let (begun, second) = (Instant::now(), Duration::from_secs(1));
        let at = |passed, delay| Measurement { at: begun + passed, delay };
        let before = at(Duration::ZERO, Some(second));
        for (delay, is_felt) in [(0, false), (250, false), (251, true), (1000, true)] {
            let after = at(second, Some(second + Duration::from_millis(delay)));
            assert_eq!(after.is_delayed_since(&before), is_felt, "{delay} ms");
        }
        assert!(!at(second, None).is_delayed_since(&before), "the kernel counts nothing");
    }
}
