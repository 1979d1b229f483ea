//! Reports about the progress of a measurement, and its cancellation.

use crate::Report;

/// Observes a measurement, and can cancel it. The implementation for `()` ignores all reports and never cancels.
pub trait Progress {
    /// Tells the observer that the measurement of `what` begins.
    fn measuring(&self, _what: &str) {}

    /// Tells the observer that `done` of `of` rounds are complete. Warm-up rounds don't count, so `done` is 0 when the
    /// warm-up ends.
    fn finished_round(&self, _done: u32, _of: u32) {}

    /// Offers an interim report about the complete rounds. The time that the observer spends on it isn't part of any
    /// measurement.
    fn interim_report(&self, _report: &dyn Fn() -> Report) {}

    /// Returns true if the measurement should stop, and should keep only the complete rounds.
    fn is_cancelled(&self) -> bool {
        false
    }
}

impl Progress for () {}
