//! `pgfresh bench`: runs benchmarks on this machine.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use bench::{
    BenchError, EventStore, Events, Fleet, Fresh, Measured, ProxyBench, Start, Transactions, Truncate,
};
use doctor::SyncComparison;
use report::{Progress, Report};
use server::{Preset, VersionRequest};
use storage::PlaceRequest;
use sys::{ProcessorWatch, Roots};

use crate::cli::Bench;
use crate::comparison;
use crate::context::Context;
use crate::context::provisioning;
use crate::disk;
use crate::failure::Failure;
use crate::report_file;
use crate::terminal_progress::{INTERRUPTED, TerminalProgress};

pub(crate) fn execute(context: &Context, command: &Bench) -> Result<ExitCode, Failure> {
    if let Bench::Suite(suite) = command {
        return comparison::suite(context, suite);
    }
    let output = command.output();
    let progress = TerminalProgress::listen(context.verbosity)?.writing(output.files())?;
    let watch = ProcessorWatch::start(&Roots::default());
    let (report, failure) = match measure(context, command, &progress) {
        Ok((report, failure)) => (Some(report).filter(|_| progress.has_measured()), failure),
        Err(failure) => (None, Some(failure)),
    };
    let Some(mut report) = report else { return Err(progress.why_nothing(failure)) };
    report.add_notes(watch.shortage().warning());
    progress.conclude(&report)?;
    report_file::print(&report, &output.printed());
    match failure {
        // Ctrl-C may also have killed the command, which would then look like a failure.
        _ if progress.is_cancelled() => Ok(ExitCode::from(INTERRUPTED)),
        Some(failure) => Err(failure),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn measure(
    context: &Context,
    command: &Bench,
    progress: &dyn Progress,
) -> Result<(Report, Option<Failure>), Failure> {
    let settings = context.settings()?;
    let cache = context.options().cache.cache.clone();
    let (server_options, program) = (settings.server_options.clone(), sys::this_program().to_owned());
    let (report, failure) = match *command {
        Bench::Start { rounds, .. } => {
            let server_options = settings.with_template()?;
            let run = || ourselves(context, "run", &["--quiet", "--", "true"]);
            let serve = || ourselves(context, "serve", &[]);
            Start { server_options, cache, program, run: &run, serve: &serve }.measure(rounds, progress)?
        }
        Bench::Gateway { rounds, .. } => {
            ProxyBench { server_options, cache, program }.measure(rounds, progress)?
        }
        Bench::Fresh { .. } | Bench::Pools { .. } | Bench::Rollback { .. } => {
            measure_databases(&Fresh { server_options, cache, program }, command, progress)?
        }
        Bench::Truncate { ref path, rounds, .. } => {
            Truncate { server_options, cache, program, disk: path.clone() }.measure(rounds, progress)?
        }
        Bench::Pgbench { ref path, scale, seconds, rounds, .. } => {
            let disk = path.clone();
            Transactions { server_options, cache, program, disk, scale, seconds }.measure(rounds, progress)?
        }
        Bench::Events { ref path, ref target, batches, batch, ref sysfs, ref procfs, .. } => {
            let disk = disk::path(context, path.as_deref())?;
            let sensors = disk::sensors(&disk, &disk::roots(sysfs.clone(), procfs.clone()));
            let thermometer = || sensors.as_ref().and_then(|sensors| sensors.read().temperature);
            let usual = || vec![EventStore::Durable, EventStore::Asynchronous, EventStore::Fast];
            let targets = if target.is_empty() { usual() } else { target.clone() };
            let (disk, thermometer) = (path.clone(), &thermometer);
            Events { server_options, cache, program, disk, targets, batch, thermometer }
                .measure(batches, progress)?
        }
        Bench::Fleet { shards, seconds, ref remote, .. } => {
            Fleet { server_options, cache, program, shards, seconds, remote: remote.clone() }
                .measure(progress)?
        }
        Bench::Fsync { ref path, rounds, .. } => {
            let path = disk::path(context, path.as_deref())?;
            let original = pg_test_fsync(context)?;
            return Ok((SyncComparison { path, original, program, rounds }.measure(progress)?, None));
        }
        Bench::Suite(_) => unreachable!("it is done elsewhere"),
    };
    Ok((report, failure.map(Into::into)))
}

/// Runs the benchmarks of fresh databases.
fn measure_databases(
    fresh: &Fresh,
    command: &Bench,
    progress: &dyn Progress,
) -> Result<Measured, BenchError> {
    match *command {
        Bench::Pools { rounds, .. } => fresh.measure_pools(rounds, progress),
        Bench::Rollback { rounds, .. } => fresh.measure_rollback(rounds, progress),
        Bench::Fresh { rounds, tables: Some(ref sizes), .. } => fresh.measure_tables(sizes, rounds, progress),
        Bench::Fresh { rounds, recycle: true, .. } => fresh.measure_recycling(rounds, progress),
        Bench::Fresh { rounds, first: true, .. } => fresh.measure_first(rounds, progress),
        Bench::Fresh { rounds, .. } => fresh.measure(rounds, progress),
        _ => unreachable!("it is done elsewhere"),
    }
}

fn pg_test_fsync(context: &Context) -> Result<PathBuf, Failure> {
    let original = provisioning::installation(context)?.client("pg_test_fsync");
    original.ok_or_else(|| {
        let failure = Failure::new("could not find pg_test_fsync");
        failure.hint("Install it (Debian: in postgresql-MAJOR, Fedora: in postgresql-contrib).".to_owned())
    })
}

/// Returns the command line that runs this program's `name` command with the options of `context`, but
/// without a template.
fn ourselves(context: &Context, name: &str, rest: &[&str]) -> Command {
    let options = context.options();
    let mut command = Command::new(sys::this_program());
    command.arg(name);
    let mut add = |name: &str, value: OsString| {
        let mut word = OsString::from(format!("--{name}="));
        word.push(value);
        command.arg(word);
    };
    match &options.postgres.postgres {
        Some(VersionRequest::Major(major)) => add("postgres", major.to_string().into()),
        Some(VersionRequest::Bin(bin)) => add("postgres", bin.into()),
        Some(VersionRequest::Any) | None => {}
    }
    match &options.place.place {
        Some(PlaceRequest::At(path)) => add("place", path.into()),
        Some(PlaceRequest::Ram) => add("place", "ram".into()),
        Some(PlaceRequest::Disk) => add("place", "disk".into()),
        Some(PlaceRequest::Auto) => add("place", "auto".into()),
        None => {}
    }
    match options.preset.preset {
        Some(Preset::Fast) => add("preset", "fast".into()),
        Some(Preset::Durable) => add("preset", "durable".into()),
        None => {}
    }
    for (name, path) in [("cache", &options.cache.cache), ("config", &options.config.config)] {
        if let Some(path) = path {
            add(name, path.into());
        }
    }
    if let Some(bytes) = options.space.space {
        add("space", format!("{bytes}B").into());
    }
    for pair in &options.settings.set {
        add("set", format!("{}={}", pair.0, pair.1).into());
    }
    for name in ["PGFRESH_SETUP", "PGFRESH_SQL", "PGFRESH_DUMP", "PGFRESH_FROM"] {
        command.env_remove(name);
    }
    command.arg("--template=none").args(rest);
    command
}
