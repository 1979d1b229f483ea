//! What a measurement reports while it runs, and how it is cancelled.

use crate::Report;

/// Follows a measurement while it runs, and may end it early. `()` follows nothing and never cancels.
pub trait Progress {
    /// `what` is measured from now on.
    fn measuring(&self, _what: &str) {}

    /// `done` of `of` rounds are finished; none when the warm-up, which does not count, is over.
    fn finished_round(&self, _done: u32, _of: u32) {}

    /// `report` makes the report of the rounds that are finished. Its time is not measured.
    fn interim_report(&self, _report: &dyn Fn() -> Report) {}

    /// Whether to leave it at what is finished.
    fn is_cancelled(&self) -> bool {
        false
    }
}

impl Progress for () {}
