//! Prints progress messages. Most lines remain, but on a terminal the last line can be a status line that changes.

use std::cell::Cell;
use std::io::{IsTerminal, Write as _, stderr};
use std::time::{Duration, Instant};

use report::display_width;
use server::printable;
use storage::human_bytes;
use template::{BuildPlan, CachedTemplate, Step};

use crate::notice::{notice, plain};
use crate::output::Verbosity;

/// How long a step must take before the status line shows it.
const QUIET_TIME: Duration = Duration::from_secs(1);
/// Interval between progress lines if standard error isn't a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(20);
/// Maximum number of changed files or values to list in a message.
const NAMED: usize = 3;

/// A terminal line that is overwritten repeatedly and finally erased.
#[derive(Default)]
struct StatusLine(Cell<bool>);

/// Returns a function that prints steps on standard error, unless the verbosity is quiet.
pub(crate) fn announce(verbosity: Verbosity) -> impl Fn(Step<'_>) {
    let terminal = stderr().is_terminal();
    let status = StatusLine::default();
    // When the copy began.
    let copying = Cell::new(None);
    move |step| {
        if verbosity.is_quiet() {
            return;
        }
        match step {
            Step::Running { step, since, line } if terminal && since > QUIET_TIME => {
                let what = format!("pgfresh: {step}, {:.0} s", since.as_secs_f64());
                status.show(&if line.is_empty() { what } else { format!("{what}: {line}") });
            }
            Step::Copying { done, total } if terminal && done < total => {
                let since = copying.get().unwrap_or_else(Instant::now);
                copying.set(Some(since));
                if since.elapsed() >= QUIET_TIME {
                    status.show(&copied(done, total, since.elapsed()));
                }
            }
            Step::Fetching { name, done, total } | Step::Pushing { name, done, total } if terminal => {
                let verb = if matches!(step, Step::Fetching { .. }) { "fetching" } else { "pushing" };
                status.show(&format!(
                    "pgfresh: {verb} template \"{name}\", {} of {}",
                    human_bytes(done),
                    human_bytes(total)
                ));
            }
            Step::Copying { .. } => {
                copying.set(None);
                status.clear();
            }
            Step::Running { .. } | Step::Fetching { .. } | Step::Pushing { .. } => {}
            Step::Evicted(_) | Step::Publishing { .. } | Step::Skipped { .. } if !verbosity.is_verbose() => {}
            other => {
                copying.set(None);
                status.clear();
                if let Some(line) = describe(other) {
                    notice!("pgfresh: {line}");
                }
            }
        }
    }
}

/// Formats a copy's progress and its estimated remaining time.
fn copied(done: u64, total: u64, since: Duration) -> String {
    let mut line = format!("pgfresh: copying, {} of {}", human_bytes(done), human_bytes(total));
    if done > 0 {
        #[allow(clippy::cast_precision_loss)]
        let left = since.as_secs_f64() * (total - done) as f64 / done as f64;
        line.push_str(&format!(", {left:.0} s left"));
    }
    line
}

impl StatusLine {
    /// Shows as much of the start of `line` as fits on the terminal.
    fn show(&self, line: &str) {
        self.show_with(line, "");
    }

    /// Shows the line followed by `hint`. Omits `hint` if both don't fit.
    fn show_with(&self, line: &str, hint: &str) {
        let width = sys::terminal_width(stderr()).unwrap_or(80);
        to_terminal(&format!("\r{}\x1b[K", fitting(line, hint, width.saturating_sub(1))));
        self.0.set(true);
    }

    fn clear(&self) {
        if self.0.take() {
            to_terminal("\r\x1b[K");
        }
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Progress of work that the user can end early with Ctrl-C. Shows a status line on a terminal. Elsewhere, prints a
/// line every [`LINE_INTERVAL`].
pub(crate) struct PacedLine {
    line: Option<StatusLine>,
    /// When the next line is due. `None` on a terminal, and if the user doesn't want messages.
    next: Option<Cell<Instant>>,
}

impl PacedLine {
    pub(crate) fn new(verbosity: Verbosity) -> Self {
        let (prints, overwrites) = (!verbosity.is_quiet(), stderr().is_terminal());
        Self {
            line: (prints && overwrites).then(StatusLine::default),
            next: (prints && !overwrites).then(|| Cell::new(Instant::now() + LINE_INTERVAL)),
        }
    }

    /// Shows `what`. If standard error isn't a terminal, prints it only if a line is due.
    pub(crate) fn show(&self, what: &str) {
        if self.line.is_some() || self.next.as_ref().is_some_and(|next| next.get() <= Instant::now()) {
            self.show_at_once(what);
        }
    }

    pub(crate) fn show_at_once(&self, what: &str) {
        if let Some(line) = &self.line {
            line.show_with(what, "; Ctrl-C shows what there is");
        }
        if let Some(next) = &self.next {
            notice!("pgfresh: {what}");
            next.set(Instant::now() + LINE_INTERVAL);
        }
    }

    pub(crate) fn clear(&self) {
        self.line.iter().for_each(StatusLine::clear);
    }
}

/// Truncates `line` to `width` columns and appends `hint` if it fits completely.
fn fitting(line: &str, hint: &str, width: usize) -> String {
    let mut columns = 0;
    let letters = plain(line).chars().filter(|letter| !letter.is_control()).collect::<Vec<_>>();
    let fits = |letter: &&char| {
        columns += display_width(letter.encode_utf8(&mut [0; 4]));
        columns <= width
    };
    let mut fitting: String = letters.iter().take_while(fits).collect();
    if display_width(&fitting) + display_width(hint) <= width {
        fitting.push_str(hint);
    }
    fitting
}

fn evicted(shelved: &CachedTemplate) -> String {
    let name = shelved.name().unwrap_or("base image");
    let digits = &shelved.fingerprint[..8.min(shelved.fingerprint.len())];
    format!("evicted template \"{name}\" ({digits}), {}", human_bytes(shelved.occupied))
}

/// Returns the line that remains on the terminal after this step. Returns `None` if the step leaves no line.
fn describe(step: Step<'_>) -> Option<String> {
    Some(match step {
        Step::BuildingBaseImage(version) => {
            format!("building the base image of PostgreSQL {version} (only once)")
        }
        Step::WaitingForBaseImage => {
            "waiting for the base image, which another process is building".to_owned()
        }
        Step::RebuildingDamaged => "the cached template is damaged; rebuilding it".to_owned(),
        Step::Building { name, fingerprint, changes, plan } => {
            building(&format!("template \"{name}\" ({fingerprint})"), changes, plan)
        }
        Step::RemovingDamagedParent { fingerprint } => {
            format!("the cached template {fingerprint} is damaged; removing it")
        }
        Step::Waiting { name } => waiting(name, "process"),
        Step::WaitingForMachine { name } => waiting(name, "machine"),
        Step::RunsEachTime { name } => format!(
            "the setup of template \"{name}\" runs each time: list what it reads, as in inputs = [\"migrations/**\"], \
             and it runs once"
        ),
        Step::SetupMadeNothing { name } => format!(
            "the setup of template \"{name}\" created nothing in its database: check that it connects to DATABASE_URL"
        ),
        Step::PropertyLeftOut { name, statement, why } => {
            format!("template \"{name}\" is built without \"{}\": {why}", printable(statement))
        }
        Step::InputsChanged { changes } => {
            format!("building again, because inputs changed during the build: {}", some_of(changes))
        }
        Step::Skipped { path, error } => format!("skipped \"{path}\" in the search for inputs: {error}"),
        Step::Publishing { name } => format!("writing template \"{name}\" into the cache"),
        Step::Built { name, bytes, took } => {
            format!("built template \"{name}\" in {took:.1} s, {}", human_bytes(bytes))
        }
        Step::Evicted(shelved) => evicted(shelved),
        Step::Fetched { name, bytes, took } => {
            format!("fetched template \"{name}\" in {took:.1} s, {}", human_bytes(bytes))
        }
        Step::NotFetched { name, why } => format!("template \"{name}\" is built here: {why}"),
        Step::Pushed { bytes: 0, .. }
        | Step::Running { .. }
        | Step::Copying { .. }
        | Step::Fetching { .. }
        | Step::Pushing { .. } => return None,
        Step::Pushed { name, bytes, took } => {
            format!("pushed template \"{name}\" in {took:.1} s, {}", human_bytes(bytes))
        }
        Step::NotPushed { name, why } => format!("template \"{name}\" is not pushed: {why}"),
    })
}

fn building(template: &str, changes: &[String], plan: &BuildPlan) -> String {
    match plan {
        BuildPlan::Incremental { parent, added } => {
            format!("building {template} on {parent}: {}", incremental(added))
        }
        BuildPlan::Full { reasons } if !reasons.is_empty() => {
            format!("building {template} in full: {}", some_of(reasons))
        }
        BuildPlan::Full { .. } if changes.is_empty() => format!("building {template}"),
        BuildPlan::Full { .. } => format!("rebuilding {template}: {}", some_of(changes)),
    }
}

fn waiting(name: &str, who: &str) -> String {
    format!("waiting for template \"{name}\", which another {who} is building")
}

/// Formats the list of files that an incremental build adds to the template.
pub(crate) fn incremental(added: &[String]) -> String {
    format!("new {}", some_of(added))
}

/// Joins the first few changes and counts the rest.
pub(crate) fn some_of(changes: &[String]) -> String {
    let named = changes[..changes.len().min(NAMED)].join(", ");
    match changes.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named}, and {more} more"),
    }
}

#[expect(clippy::let_underscore_must_use, reason = "a terminal that is gone shows no progress")]
fn to_terminal(text: &str) {
    let _ = stderr().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hint_is_shown_whole_or_omitted() {
        for (width, expected) in [(3, "3 s"), (8, "3 s left"), (15, "3 s left"), (16, "3 s left; Ctrl-C")] {
            assert_eq!(fitting("3 s\t left", "; Ctrl-C", width), expected, "{width}");
        }
        assert_eq!(fitting("\u{1b}[2J日本\u{202e}", "", 3), "日");
    }
}
