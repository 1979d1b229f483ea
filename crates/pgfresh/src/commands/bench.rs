//! `pgfresh bench`: measures on this machine.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bench::runner::{Observer, Timed};
use bench::{Fresh, Passage, Start};
use report::Report;
use serde_json::{Value, json};
use server::{Preset, Wanted};
use signal_hook::consts::SIGINT;
use storage::Wish;

use super::OURSELVES;
use crate::cli::{Bench, Options};
use crate::config;
use crate::failure::Failure;
use crate::output;
use crate::output::say;

pub(crate) fn execute(options: &Options, command: &Bench) -> Result<ExitCode, Failure> {
    let (wishes, cache, program) =
        (config::wishes(options)?, options.cache.clone(), PathBuf::from(OURSELVES));
    let mut onlooker = Onlooker::listen(options)?;
    let ((report, timed, failure), json) = match *command {
        Bench::Start { rounds, json } => {
            let run = || ourselves(options, &["run", "--quiet", "--", "true"]);
            let serve = || ourselves(options, &["serve"]);
            let start = Start { wishes, cache, program, run: &run, serve: &serve };
            (start.measure(rounds, &mut onlooker)?, json)
        }
        Bench::Gateway { rounds, json } => {
            (Passage { wishes, cache, program }.measure(rounds, &mut onlooker)?, json)
        }
        Bench::Rollback { rounds, json } => {
            (Fresh { wishes, cache, program }.measure_rollback(rounds, &mut onlooker)?, json)
        }
        Bench::Fresh { rounds, recycle, json } => {
            let fresh = Fresh { wishes, cache, program };
            let measured = if recycle {
                fresh.measure_recycling(rounds, &mut onlooker)
            } else {
                fresh.measure(rounds, &mut onlooker)
            };
            (measured?, json)
        }
        Bench::Fsync { ref path, rounds, json } => {
            return super::doctor::compare(options, path.as_deref(), rounds, json);
        }
    };
    onlooker.finish();
    show(&report, &timed, json);
    match failure {
        Some(error) => Err(error.into()),
        None if onlooker.wants_to_stop() => Ok(ExitCode::from(130)),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn show(report: &Report, timed: &[Timed], json: bool) {
    if json {
        let mut value = report.to_json();
        let samples = timed.iter().map(|timed| json!({ "name": timed.name(), "phases": timed.phases() }));
        value["samples"] = samples.collect::<Value>();
        say!("{value}");
    } else {
        output::print(report);
    }
}

/// This program with the same wishes and other words.
fn ourselves(options: &Options, words: &[&str]) -> Command {
    let mut command = Command::new(OURSELVES);
    let mut add = |name: &str, value: OsString| {
        let mut word = OsString::from(format!("--{name}="));
        word.push(value);
        command.arg(word);
    };
    match &options.postgres {
        Some(Wanted::Major(major)) => add("postgres", major.to_string().into()),
        Some(Wanted::Bin(bin)) => add("postgres", bin.into()),
        Some(Wanted::Any) | None => {}
    }
    match &options.place {
        Some(Wish::At(path)) => add("place", path.into()),
        Some(Wish::Ram) => add("place", "ram".into()),
        Some(Wish::Disk) => add("place", "disk".into()),
        Some(Wish::Auto) => add("place", "auto".into()),
        None => {}
    }
    match options.preset {
        Some(Preset::Fast) => add("preset", "fast".into()),
        Some(Preset::Durable) => add("preset", "durable".into()),
        None => {}
    }
    for (name, path) in [("cache", &options.cache), ("config", &options.config)] {
        if let Some(path) = path {
            add(name, path.into());
        }
    }
    for pair in &options.set {
        add("set", pair.into());
    }
    for name in ["PGFRESH_SETUP", "PGFRESH_SQL", "PGFRESH_DUMP", "PGFRESH_FROM"] {
        command.env_remove(name);
    }
    command.arg("--template=none").args(words);
    command
}

/// Shows how far it is, and takes Ctrl-C for "that is enough". A second one ends us at once.
pub(super) struct Onlooker {
    stop: Arc<AtomicBool>,
    shows: bool,
}

impl Onlooker {
    pub(super) fn listen(options: &Options) -> Result<Self, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        // In this order: the first signal finds the flag down and puts it up, the second finds it up.
        signal_hook::flag::register_conditional_default(SIGINT, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(SIGINT, Arc::clone(&stop)))
            .map_err(|error| Failure::new(format!("could not listen for signals: {error}")))?;
        Ok(Self { stop, shows: !options.quiet && io::stderr().is_terminal() })
    }

    pub(super) fn finish(&self) {
        if self.shows {
            eprint!("\r\x1b[K");
        }
    }
}

impl Observer for Onlooker {
    fn after_round(&mut self, done: u32, of: u32) {
        if self.shows {
            eprint!("\rround {done} of {of}; Ctrl-C shows what was measured so far");
        }
    }

    fn wants_to_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
