//! Shows the progress of a sweep.

use std::cell::Cell;
use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use crate::notice::notice;
use crate::output::Verbosity;
use crate::progress::StatusLine;

/// Interval between progress lines if standard error isn't a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(20);

/// Progress on standard error: one changing line on a terminal, and otherwise a line from time to time.
#[derive(Default)]
pub(super) struct SweepProgress {
    line: Option<StatusLine>,
    /// When the next line is due. `None` on a terminal, and if the user wants no messages.
    next: Option<Cell<Instant>>,
}

impl SweepProgress {
    pub(super) fn new(verbosity: Verbosity) -> Self {
        let (prints, overwrites) = (!verbosity.is_quiet(), stderr().is_terminal());
        Self {
            line: (prints && overwrites).then(StatusLine::default),
            next: (prints && !overwrites).then(|| Cell::new(Instant::now() + LINE_INTERVAL)),
        }
    }

    /// Shows the number of finished runs.
    pub(super) fn show(&self, done: usize, total: usize, findings: usize) {
        let findings = if findings == 1 { "1 finding".to_owned() } else { format!("{findings} findings") };
        self.say(&format!("pgfresh: {done} of {total} faults, {findings}"));
    }

    /// Shows what the sweep does before the first fault.
    pub(super) fn say(&self, what: &str) {
        if let Some(line) = &self.line {
            line.show_with(what, "; Ctrl-C shows what there is");
        }
        let now = Instant::now();
        if let Some(next) = self.next.as_ref().filter(|next| next.get() <= now) {
            notice!("{what}");
            next.set(now + LINE_INTERVAL);
        }
    }
}
