//! Shows the progress of fault trials.

use std::sync::Mutex;

use report::counted;
use sys::lock;

use crate::output::Verbosity;
use crate::progress::PacedLine;

/// Progress on standard error, shared by all of the trials' threads.
pub(super) struct TrialsProgress(Mutex<PacedLine>);

impl TrialsProgress {
    pub(super) fn new(verbosity: Verbosity) -> Self {
        Self(Mutex::new(PacedLine::new(verbosity)))
    }

    /// Shows the number of finished runs.
    pub(super) fn show(&self, done: usize, total: usize, findings: usize) {
        let findings = counted(findings, "finding", "findings");
        lock(&self.0).show(&format!("{done} of {total} faults, {findings}"));
    }

    /// Shows a step that comes before the first fault. `what` is a phrase.
    pub(super) fn show_step(&self, what: &str) {
        lock(&self.0).show_at_once(what);
    }
}
