//! `pgfresh bench`: measures on this machine.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use bench::runner::Timed;
use bench::{Fresh, Passage, Start};
use report::Report;
use serde_json::{Value, json};
use server::{Preset, Wanted};
use storage::Wish;

use super::OURSELVES;
use crate::cli::{Bench, Options};
use crate::config;
use crate::failure::Failure;
use crate::onlooker::Onlooker;
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
        None if onlooker.has_seen_enough() => Ok(ExitCode::from(130)),
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
