//! Shows a measurement's progress on the terminal and writes interim reports to files. Ctrl-C cancels the measurement.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use report::{Progress, Report};
use signal_hook::consts::SIGINT;

use crate::failure::Failure;
use crate::output::Verbosity;
use crate::progress::PacedLine;
use crate::report_file::{self, ReportFile};

/// Exit code of a command canceled with Ctrl-C: 128 plus the number of SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;
/// Minimum time between two updates of the files, as a multiple of the time that an update takes.
const WRITING: u32 = 20;
/// Width of the progress bar, in columns.
const BAR: u32 = 16;

/// Shows a measurement's progress on standard error. The first Ctrl-C cancels the measurement, and the second kills
/// pgfresh immediately.
pub(crate) struct TerminalProgress {
    cancelled: Arc<AtomicBool>,
    line: PacedLine,
    files: Vec<ReportFile>,
    /// True once a round has finished.
    has_measured: Cell<bool>,
    /// Name of the current measurement, possibly empty.
    what: RefCell<String>,
    /// When the warm-up ended.
    since: Cell<Instant>,
    /// Earliest time of the next update of the files.
    next_writing: Cell<Instant>,
}

impl TerminalProgress {
    pub(crate) fn listen(verbosity: Verbosity) -> Result<Self, Failure> {
        let cancelled = Arc::new(AtomicBool::new(false));
        // The order matters. On the first signal, the flag is still false, so the first handler does nothing and the
        // second sets the flag. On the second signal, the first handler kills the process.
        signal_hook::flag::register_conditional_default(SIGINT, Arc::clone(&cancelled))
            .and_then(|_| signal_hook::flag::register(SIGINT, Arc::clone(&cancelled)))
            .map_err(|error| Failure::new(format!("could not listen for signals: {error}")))?;
        let now = Instant::now();
        Ok(Self {
            cancelled,
            line: PacedLine::new(verbosity),
            files: Vec::new(),
            has_measured: Cell::new(false),
            what: RefCell::default(),
            since: Cell::new(now),
            next_writing: Cell::new(now),
        })
    }

    /// Adds files for the results, after checking that they are writable.
    pub(crate) fn writing(self, files: Vec<ReportFile>) -> Result<Self, Failure> {
        report_file::expect_writable(&files)?;
        self.show("preparing and warming up");
        Ok(Self { files, ..self })
    }

    /// Ends the progress display and writes the files.
    pub(crate) fn conclude(&self, report: &Report) -> Result<(), Failure> {
        self.finish();
        report_file::write_each(&self.files, |file| file.write(report, &|| report.to_html("")))
    }

    pub(crate) fn finish(&self) {
        self.line.clear();
    }

    /// Returns true if there is a result, which requires at least one finished round.
    pub(crate) fn has_measured(&self) -> bool {
        self.has_measured.get()
    }

    /// Returns the reason why there is no result. Ignores `failure` after Ctrl-C, because Ctrl-C may have caused
    /// the failure.
    pub(crate) fn why_nothing(&self, failure: Option<Failure>) -> Failure {
        self.finish();
        let interrupted = || Failure::new("nothing was measured yet").exit_with(INTERRUPTED);
        failure.filter(|_| !self.is_cancelled()).unwrap_or_else(interrupted)
    }

    fn show(&self, what: &str) {
        self.line.show(what);
    }
}

/// Formats a progress bar with the estimated remaining time.
fn bar(done: u32, of: u32, taken: Duration) -> String {
    let full = BAR * done / of.max(1);
    let blocks: String = (0..BAR).map(|column| if column < full { '█' } else { '░' }).collect();
    let left = taken.checked_div(done).map(|each| each * of.saturating_sub(done));
    let left = left.map_or_else(String::new, |left| match left.as_secs() {
        seconds @ 0..120 => format!(", {seconds} s left"),
        seconds => format!(", {} min left", seconds.div_ceil(60)),
    });
    format!("{blocks} {done} of {of} rounds{left}")
}

impl Progress for TerminalProgress {
    fn measuring(&self, what: &str) {
        self.what.replace(format!("measuring {what}"));
        self.show(&self.what.borrow());
    }

    fn finished_round(&self, done: u32, of: u32) {
        if done == 0 {
            self.since.set(Instant::now());
        }
        self.has_measured.set(self.has_measured.get() || done > 0);
        let bar = bar(done, of, self.since.get().elapsed());
        match self.what.borrow().as_str() {
            "" => self.show(&bar),
            what => self.show(&format!("{what}: {bar}")),
        }
    }

    fn interim_report(&self, report: &dyn Fn() -> Report) {
        let begun = Instant::now();
        if self.files.is_empty() || begun < self.next_writing.get() {
            return;
        }
        let report = report();
        for file in &self.files {
            // After an error, the next round tries again. If the last round fails as well, the command reports the
            // error.
            if let Err(failure) = file.write(&report, &|| report.to_html("")) {
                tracing::warn!("{}", failure.on_one_line());
            }
        }
        self.next_writing.set(Instant::now() + begun.elapsed() * WRITING);
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_time_is_extrapolated_from_elapsed_time() {
        let text = |done, of| bar(done, of, Duration::from_secs(10));
        assert_eq!(text(5, 20), "████░░░░░░░░░░░░ 5 of 20 rounds, 30 s left");
        assert!(text(1, 61).ends_with("1 of 61 rounds, 10 min left"));
        assert!(text(3, 3).ends_with("3 of 3 rounds, 0 s left"));
        assert!(text(0, 3).ends_with("0 of 3 rounds"));
    }
}
