//! Progress reports, and the cancellation of a measurement.

use crate::Report;

/// Observes a measurement and can cancel it. The implementation for `()` ignores all reports and never cancels.
pub trait Progress {
    /// Reports that the measurement of `what` begins.
    fn measuring(&self, _what: &str) {}

    /// Reports that `done` of `of` rounds are finished. Warm-up rounds don't count, so `done` is 0 when the warm-up
    /// ends.
    fn finished_round(&self, _done: u32, _of: u32) {}

    /// Offers an interim report about the finished rounds. The time spent here isn't measured.
    fn interim_report(&self, _report: &dyn Fn() -> Report) {}

    /// Returns true if the measurement should stop and keep only the finished rounds.
    fn is_cancelled(&self) -> bool {
        false
    }
}

impl Progress for () {}
