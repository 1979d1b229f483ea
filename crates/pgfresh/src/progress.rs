//! What is said while something takes long: lines that stay, and on a terminal one that does not.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _, stderr};
use std::time::{Duration, Instant};

use storage::human_bytes;
use template::Step;

use crate::output::Verbosity;

/// What is shorter than this is not worth a line that moves.
const QUIET_TIME: Duration = Duration::from_secs(1);
/// How many changes are named.
const NAMED: usize = 3;

/// A line on a terminal that is written over and over, and is gone in the end.
struct Moving {
    shown: bool,
    /// Since when bytes are copied, and how many there were.
    copying: Option<Instant>,
}

/// What is rare or takes long is said on standard error, unless nothing shall be.
pub(crate) fn announce(verbosity: Verbosity) -> impl Fn(Step<'_>) {
    let terminal = stderr().is_terminal();
    let moving = RefCell::new(Moving { shown: false, copying: None });
    move |step| {
        if verbosity.is_quiet() {
            return;
        }
        let mut moving = moving.borrow_mut();
        match step {
            Step::Running { step, since, line } if terminal && since > QUIET_TIME => {
                moving.show(&format!("{step}, {:.0} s: {line}", since.as_secs_f64()));
            }
            Step::Copying { done, total } if terminal => moving.show_copy(done, total),
            Step::Running { .. } | Step::Copying { .. } => {}
            Step::Evicted(_) | Step::Publishing { .. } if !verbosity.is_verbose() => {}
            other => {
                moving.clear();
                if let Some(line) = describe(other) {
                    eprintln!("pgfresh: {line}");
                }
            }
        }
    }
}

impl Moving {
    fn show(&mut self, line: &str) {
        let width = sys::terminal_width().unwrap_or(0);
        let width = if width == 0 { 80 } else { width };
        let plain: String = line.chars().filter(|letter| !letter.is_control()).collect();
        let fitting: String = format!("pgfresh: {plain}").chars().take(width.saturating_sub(1)).collect();
        let _ = write!(stderr(), "\r{fitting}\x1b[K");
        self.shown = true;
    }

    fn show_copy(&mut self, done: u64, total: u64) {
        if done >= total {
            return self.clear();
        }
        let since = self.copying.get_or_insert_with(Instant::now).elapsed();
        if since < QUIET_TIME {
            return;
        }
        let mut line = format!("copying, {} of {}", human_bytes(done), human_bytes(total));
        if done > 0 {
            #[allow(clippy::cast_precision_loss)]
            let left = since.as_secs_f64() * (total - done) as f64 / done as f64;
            let _ = write!(line, ", {left:.0} s left");
        }
        self.show(&line);
    }

    fn clear(&mut self) {
        self.copying = None;
        if std::mem::take(&mut self.shown) {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The line that stays.
fn describe(step: Step<'_>) -> Option<String> {
    Some(match step {
        Step::BuildingBaseImage(version) => {
            format!("making the base image of PostgreSQL {version}, this once")
        }
        Step::WaitingForBaseImage => "waiting for the base image, which another process is making".to_owned(),
        Step::RebuildingDamaged => "the cached template is damaged; making it anew".to_owned(),
        Step::Building { name, fingerprint, changes: [] } => {
            format!("building template \"{name}\" ({fingerprint})")
        }
        Step::Building { name, fingerprint, changes } => {
            format!("rebuilding template \"{name}\" ({fingerprint}): {}", some_of(changes))
        }
        Step::Waiting { name } => {
            format!("waiting for template \"{name}\", which another process is building")
        }
        Step::RunsEachTime { name } => format!(
            "the setup of template \"{name}\" runs each time: list what it reads, as in inputs = [\"migrations/**\"], \
             and it runs once"
        ),
        Step::InputsChanged { changes } => {
            format!("building once more, because meanwhile: {}", some_of(changes))
        }
        Step::Publishing { name } => format!("writing template \"{name}\" into the cache"),
        Step::Built { name, bytes, took } => {
            format!("built template \"{name}\" in {took:.1} s, {}", human_bytes(bytes))
        }
        Step::Evicted(shelved) => format!(
            "evicted template \"{}\" ({}), {}",
            shelved.name().unwrap_or("base image"),
            &shelved.fingerprint[..8.min(shelved.fingerprint.len())],
            human_bytes(shelved.occupied)
        ),
        Step::Running { .. } | Step::Copying { .. } => return None,
    })
}

/// The first of many changes.
pub(crate) fn some_of(changes: &[String]) -> String {
    let named = changes[..changes.len().min(NAMED)].join(", ");
    match changes.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named}, and {more} more"),
    }
}
