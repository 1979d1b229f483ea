//! Filters and writes log records. `-vv` or `PGFRESH_LOG` sets the filter. Commands log to standard error, the
//! background server to a file. All times are in UTC.

use std::env::{self, VarError};
use std::io;
use std::path::Path;
use std::sync::Mutex;

use storage::Attempt;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

use crate::failure::Failure;
use crate::log_file::LogFile;
use crate::output::Verbosity;

/// Variable that contains the filter: a comma-separated list whose items are `LEVEL` or `TARGET=LEVEL`.
const VARIABLE: &str = "PGFRESH_LOG";
/// The crates that write log records.
const TARGETS: [&str; 19] = [
    "api",
    "bench",
    "contract",
    "diff",
    "doctor",
    "gateway",
    "lease",
    "migrations",
    "pgfresh",
    "pgwire",
    "plans",
    "profile",
    "remote",
    "report",
    "server",
    "storage",
    "sys",
    "template",
    "trials",
];
/// The background server's log level if the user doesn't set a filter.
const USUAL: LevelFilter = LevelFilter::INFO;
/// Maximum size of each of the background server's two log files, in bytes.
const FILE_SIZE: usize = 4 << 20;

/// Filter for log records. `None` drops them all.
#[derive(Debug)]
pub(crate) struct LogFilter(Option<Targets>);

impl LogFilter {
    /// Reads the filter from `PGFRESH_LOG`, falling back to `-vv`.
    pub(crate) fn new(verbosity: Verbosity) -> Result<Self, Failure> {
        let text = match env::var(VARIABLE) {
            Err(VarError::NotPresent) => String::new(),
            Ok(text) => text,
            Err(VarError::NotUnicode(text)) => {
                return Err(cannot_read(&text.to_string_lossy(), "it is not UTF-8"));
            }
        };
        if !text.trim().is_empty() {
            return parse(&text).map(|targets| Self(Some(targets)));
        }
        let debug = || ours(LevelFilter::DEBUG);
        Ok(Self((verbosity >= Verbosity::Background).then(debug)))
    }

    /// Writes records to standard error from now on. Does nothing if the filter drops all records.
    pub(crate) fn write_to_terminal(self) {
        if let Some(targets) = self.0 {
            let layer = fmt::layer().with_writer(io::stderr).log_internal_errors(false);
            tracing_subscriber::registry().with(layer).with(targets).init();
        }
    }

    /// Writes records to the file at `path` from now on.
    pub(crate) fn write_to_file(self, path: &Path) -> Result<(), Failure> {
        let targets = self.0.unwrap_or_else(|| ours(USUAL));
        let file = LogFile::open(path, FILE_SIZE).attempt("write", path)?;
        let layer = fmt::layer().with_writer(Mutex::new(file)).with_ansi(false).log_internal_errors(false);
        tracing_subscriber::registry().with(layer).with(targets).init();
        Ok(())
    }
}

/// Returns a filter that accepts only pgfresh's own records, because libraries' records may contain secrets, such as a
/// URL with a password.
fn ours(level: LevelFilter) -> Targets {
    Targets::new().with_targets(TARGETS.map(|target| (target, level)))
}

fn parse(text: &str) -> Result<Targets, Failure> {
    let (mut default, mut named) = (LevelFilter::OFF, Vec::new());
    for directive in text.split(',').map(str::trim).filter(|directive| !directive.is_empty()) {
        // A target without a level enables all of that target's records.
        let (target, level) = match directive.split_once('=') {
            Some((target, level)) => (Some(target), level),
            None if known(directive) => (Some(directive), "trace"),
            None => (None, directive),
        };
        // The parser would treat an empty level as "error", so reject an empty level here.
        let level: LevelFilter = Some(level)
            .filter(|level| !level.is_empty())
            .and_then(|level| level.parse().ok())
            .ok_or_else(|| cannot_read(text, &format!("there is no level \"{level}\"")))?;
        match target {
            None => default = level,
            Some(target) if known(target) => named.push((target, level)),
            Some(target) => return Err(cannot_read(text, &format!("there is no target \"{target}\""))),
        }
    }
    Ok(ours(default).with_targets(named))
}

/// Returns true if the target is one of [`TARGETS`] or a module in one of these crates.
fn known(target: &str) -> bool {
    target.split("::").next().is_some_and(|name| TARGETS.contains(&name))
}

fn cannot_read(text: &str, why: &str) -> Failure {
    Failure::new(format!("cannot read {VARIABLE} \"{text}\": {why}")).hint(format!(
        "Write a level (error, warn, info, debug, trace, off) or TARGET=LEVEL, separated by commas. Targets are {}.",
        TARGETS.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn every_crate_is_a_target() {
        let crates = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
        let entries = std::fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path());
        let packages = entries.filter(|path| path.join("Cargo.toml").is_file());
        let mut names: Vec<_> =
            packages.map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
        names.sort();
        assert_eq!(names, TARGETS);
    }

    #[test]
    fn levels_and_targets_are_read() {
        let targets = parse("warn, lease=debug,gateway::rollback=off,api").unwrap();
        assert!(targets.would_enable("server::boot", &Level::WARN));
        assert!(!targets.would_enable("server::boot", &Level::INFO));
        assert!(targets.would_enable("lease::execute", &Level::DEBUG));
        assert!(!targets.would_enable("lease::execute", &Level::TRACE));
        assert!(!targets.would_enable("gateway::rollback::machine", &Level::ERROR));
        assert!(targets.would_enable("gateway::accept", &Level::WARN));
        assert!(targets.would_enable("api", &Level::TRACE));
    }

    #[test]
    fn unknown_log_level_or_target_is_refused() {
        for (text, why) in [
            ("debgu", "there is no level \"debgu\""),
            ("lease=loud", "there is no level \"loud\""),
            ("warn,leese=debug", "there is no target \"leese\""),
            ("lease=", "there is no level \"\""),
            ("=debug", "there is no target \"\""),
        ] {
            let failure = parse(text).unwrap_err().to_string();
            assert!(
                failure.starts_with(&format!("pgfresh: cannot read PGFRESH_LOG \"{text}\": {why}\nHINT:"))
            );
        }
    }
}
