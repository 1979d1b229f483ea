//! Reports the progress of a measurement, and lets the observer cancel it.

use crate::Report;

/// Observes a measurement and can cancel it. The implementation for `()` ignores all reports and never cancels.
pub trait Progress {
    /// Called when the measurement of `what` begins.
    fn measuring(&self, _what: &str) {}

    /// Called when `done` of `of` rounds are complete. Warm-up rounds don't count, so `done` is 0 after the warm-up.
    fn finished_round(&self, _done: u32, _of: u32) {}

    /// Offers an interim report on the complete rounds. The time that the observer spends on the report isn't part of
    /// any measurement.
    fn interim_report(&self, _report: &dyn Fn() -> Report) {}

    /// Returns true if the measurement should stop and discard the incomplete round.
    fn is_cancelled(&self) -> bool {
        false
    }
}

impl Progress for () {}
