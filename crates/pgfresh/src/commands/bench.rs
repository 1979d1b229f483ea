//! `pgfresh bench`: measures on this machine.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};

use bench::{EventStore, Events, Fresh, Measured, ProxyBench, Start, Transactions, Truncate};
use doctor::SyncComparison;
use server::{Preset, VersionRequest};
use storage::PlaceRequest;

use crate::cli::{Bench, Options, Output};
use crate::comparison;
use crate::disk;
use crate::failure::Failure;
use crate::onlooker::Onlooker;
use crate::report_file;
use crate::settings::ResolvedSettings;
use crate::startup;

pub(crate) fn execute(
    options: &Options,
    settings: &ResolvedSettings,
    command: &Bench,
) -> Result<ExitCode, Failure> {
    if let Bench::Fsync { path, rounds, output } = command {
        return fsync(settings, path.as_deref(), *rounds, output);
    }
    if let Bench::Suite(suite) = command {
        return comparison::suite(settings, suite);
    }
    let output = command.output();
    let mut onlooker = Onlooker::listen(settings.verbosity)?.writing(output.files())?;
    let (report, failure) = measure(options, settings, command, &mut onlooker)?;
    onlooker.conclude(&report)?;
    report_file::print(&report, &output.printed());
    match failure {
        Some(error) => Err(error.into()),
        None if onlooker.has_seen_enough() => Ok(ExitCode::from(130)),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn measure(
    options: &Options,
    settings: &ResolvedSettings,
    command: &Bench,
    onlooker: &mut Onlooker,
) -> Result<Measured, Failure> {
    let (server_options, cache, program) =
        (settings.with_template()?, options.cache.clone(), sys::this_program().to_owned());
    Ok(match *command {
        Bench::Start { rounds, .. } => {
            let run = || ourselves(options, &["run", "--quiet", "--", "true"]);
            let serve = || ourselves(options, &["serve"]);
            Start { server_options, cache, program, run: &run, serve: &serve }.measure(rounds, onlooker)?
        }
        Bench::Gateway { rounds, .. } => {
            ProxyBench { server_options, cache, program }.measure(rounds, onlooker)?
        }
        Bench::Rollback { rounds, .. } => {
            Fresh { server_options, cache, program }.measure_rollback(rounds, onlooker)?
        }
        Bench::Fresh { rounds, recycle: true, .. } => {
            Fresh { server_options, cache, program }.measure_recycling(rounds, onlooker)?
        }
        Bench::Fresh { rounds, .. } => Fresh { server_options, cache, program }.measure(rounds, onlooker)?,
        Bench::Truncate { ref path, rounds, .. } => {
            let disk = path.clone();
            Truncate { server_options, cache, program, disk }.measure(rounds, onlooker)?
        }
        Bench::Pgbench { ref path, scale, seconds, rounds, .. } => {
            let disk = path.clone();
            Transactions { server_options, cache, program, disk, scale, seconds }.measure(rounds, onlooker)?
        }
        Bench::Events { ref path, ref target, batches, batch, ref sysfs, ref procfs, .. } => {
            let disk = disk::path(settings, path.as_deref())?;
            let sensors = disk::sensors(&disk, &disk::roots(sysfs.clone(), procfs.clone()));
            let thermometer = || sensors.as_ref().and_then(|sensors| sensors.look().temperature);
            let mut targets = target.clone();
            if targets.is_empty() {
                targets = vec![EventStore::Durable, EventStore::Asynchronous, EventStore::Fast];
            }
            let (disk, thermometer) = (path.clone(), &thermometer);
            Events { server_options, cache, program, disk, targets, batch, thermometer }
                .measure(batches, onlooker)?
        }
        Bench::Fsync { .. } | Bench::Suite(_) => unreachable!("they are done elsewhere"),
    })
}

/// `pgfresh bench fsync`: our syncs beside those of `pg_test_fsync`.
fn fsync(
    settings: &ResolvedSettings,
    named: Option<&Path>,
    rounds: u32,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let original = startup::provisioner_without_template(settings)?.installation.client("pg_test_fsync");
    let original = original.ok_or_else(|| {
        let failure = Failure::new("could not find pg_test_fsync");
        failure.hint("Install it (Debian: in postgresql-MAJOR, Fedora: in postgresql-contrib).".to_owned())
    })?;
    let program = sys::this_program().to_owned();
    let comparison = SyncComparison { path: disk::path(settings, named)?, original, program, rounds };
    let onlooker = Onlooker::listen(settings.verbosity)?.writing(output.files())?;
    let report = comparison.measure(&onlooker)?;
    onlooker.conclude(&report)?;
    report_file::print(&report, &output.printed());
    let stopped = onlooker.has_seen_enough();
    Ok(if stopped { ExitCode::from(130) } else { ExitCode::SUCCESS })
}

/// This program with the same options and other arguments.
fn ourselves(options: &Options, words: &[&str]) -> Command {
    let mut command = Command::new(sys::this_program());
    let mut add = |name: &str, value: OsString| {
        let mut word = OsString::from(format!("--{name}="));
        word.push(value);
        command.arg(word);
    };
    match &options.postgres {
        Some(VersionRequest::Major(major)) => add("postgres", major.to_string().into()),
        Some(VersionRequest::Bin(bin)) => add("postgres", bin.into()),
        Some(VersionRequest::Any) | None => {}
    }
    match &options.place {
        Some(PlaceRequest::At(path)) => add("place", path.into()),
        Some(PlaceRequest::Ram) => add("place", "ram".into()),
        Some(PlaceRequest::Disk) => add("place", "disk".into()),
        Some(PlaceRequest::Auto) => add("place", "auto".into()),
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
