//! Progress reports and cancellation of a measurement.

use crate::Report;

/// Observer of a running measurement, which can also cancel it. `()` ignores everything and never cancels.
pub trait Progress {
    /// Announces that the measurement of `what` begins.
    fn measuring(&self, _what: &str) {}

    /// Announces that `done` of `of` rounds are finished. `done` is 0 at the end of the warm-up, which does not count.
    fn finished_round(&self, _done: u32, _of: u32) {}

    /// Offers an interim report of the finished rounds. Time spent here is not measured.
    fn interim_report(&self, _report: &dyn Fn() -> Report) {}

    /// Whether to stop and keep only the finished rounds.
    fn is_cancelled(&self) -> bool {
        false
    }
}

impl Progress for () {}
