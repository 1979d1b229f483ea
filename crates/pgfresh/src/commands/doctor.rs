//! `pgfresh doctor`: why is it slow here, and what would help?

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use doctor::{Diagnosis, Examination, Remote, SyncComparison, Tests};
use report::{Earlier, Sample};
use serde_json::{Map, Value, json};
use storage::{Account, Place, PlaceRequest};
use sys::Roots;
use template::{ProvisionError, Provisioner};

use crate::cli::{Doctor, Options, Output};
use crate::config;
use crate::failure::Failure;
use crate::onlooker::Onlooker;
use crate::output;
use crate::output::say;

/// How long is measured, and with `--quick`.
const LENGTH: [Duration; 2] = [Duration::from_secs(9), Duration::from_millis(2500)];
/// The percentiles that programs get of each distribution.
const PERCENTILES: [f64; 7] = [1.0, 10.0, 50.0, 90.0, 99.0, 99.9, 100.0];

pub(crate) fn execute(options: &Options, arguments: &Doctor) -> Result<ExitCode, Failure> {
    let roots = roots(arguments.sysfs.clone(), arguments.procfs.clone());
    let onlooker = Onlooker::listen(options)?;
    let length = LENGTH[usize::from(arguments.quick)];
    if let Some(url) = &arguments.url {
        // No server is needed here: without an installation, whatever psql PATH has.
        let target = server::ConnectionString::parse(url)?;
        let psql = super::installed(options).and_then(|provisioner| super::psql::find_psql(&provisioner));
        let psql = psql.unwrap_or_else(|_| PathBuf::from("psql"));
        let diagnosis = Remote { target, psql, length }.diagnose(&onlooker)?;
        onlooker.finish();
        show(&diagnosis, arguments.json);
        return Ok(ExitCode::SUCCESS);
    }
    let examination = Examination {
        path: path(options, arguments.path.as_deref())?,
        roots,
        length,
        soak: arguments.soak,
        suite: suite(arguments)?,
        tries: arguments.r#try,
        all: options.verbose || arguments.json,
        program: PathBuf::from(super::OURSELVES),
        provisioner: provisioner(options)?,
    };
    let diagnosis = examination.diagnose(&onlooker)?;
    onlooker.finish();
    show(&diagnosis, arguments.json);
    let stopped = onlooker.has_seen_enough();
    Ok(if stopped { ExitCode::from(130) } else { ExitCode::SUCCESS })
}

/// What the tests do, as far as the user tells.
fn suite(arguments: &Doctor) -> Result<Option<Tests>, Failure> {
    let Some(path) = &arguments.profile else { return Ok(arguments.suite.clone().map(Tests::Command)) };
    let unreadable =
        |why: &dyn std::fmt::Display| Failure::new(format!("could not read \"{}\": {why}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| unreadable(&error))?;
    let earlier = Earlier::read(&text).map_err(|_| {
        let hint = "Make one: \"pgfresh run --profile --report profile.json -- COMMAND\".";
        unreadable(&"it is no report in JSON").hint(hint.to_owned())
    })?;
    Ok(Some(Tests::Profile(earlier)))
}

/// `pgfresh bench fsync`: our syncs beside those of `pg_test_fsync`.
pub(super) fn compare(
    options: &Options,
    named: Option<&Path>,
    rounds: u32,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let original = super::bare_maker(options)?.installation.client("pg_test_fsync");
    let original = original.ok_or_else(|| {
        let failure = Failure::new("could not find pg_test_fsync");
        failure.hint("Install it (Debian: in postgresql-MAJOR, Fedora: in postgresql-contrib).".to_owned())
    })?;
    let program = PathBuf::from(super::OURSELVES);
    let comparison = SyncComparison { path: path(options, named)?, original, program, rounds };
    let onlooker = Onlooker::listen(options)?.writing(output.files())?;
    let report = comparison.measure(&onlooker)?;
    onlooker.conclude(&report)?;
    super::bench::show(&report, output);
    let stopped = onlooker.has_seen_enough();
    Ok(if stopped { ExitCode::from(130) } else { ExitCode::SUCCESS })
}

/// What servers are made with. That there is no installation is no reason to say nothing of the disk.
fn provisioner(options: &Options) -> Result<Result<Provisioner, ProvisionError>, Failure> {
    let server_options = config::server_options(options)?;
    let provisioner =
        Provisioner::find(server_options, super::cache(options)?, PathBuf::from(super::OURSELVES));
    if let Ok(provisioner) = &provisioner {
        // As every start does.
        let _ = provisioner.sweep();
    }
    Ok(provisioner)
}

/// Where the machine shows itself, unless these stand in for it.
pub(super) fn roots(sysfs: Option<PathBuf>, procfs: Option<PathBuf>) -> Roots {
    let defaults = Roots::default();
    Roots { sysfs: sysfs.unwrap_or(defaults.sysfs), procfs: procfs.unwrap_or(defaults.procfs) }
}

/// The directory that was named, or where a server's data would live on disk.
pub(super) fn path(options: &Options, named: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = named {
        return Ok(path.to_owned());
    }
    let wish = match config::read(options)?.server_options.place {
        PlaceRequest::At(path) => PlaceRequest::At(path),
        PlaceRequest::Auto | PlaceRequest::Ram | PlaceRequest::Disk => PlaceRequest::Disk,
    };
    let cache = super::cache(options)?;
    let place = Place::choose(&wish, 0, cache.root(), &Account::ours());
    Ok(place.map_err(ProvisionError::from)?.root().to_owned())
}

fn show(diagnosis: &Diagnosis, json: bool) {
    if json {
        let mut value = diagnosis.report.to_json();
        value["distributions"] = diagnosis.samples.iter().map(distribution).collect();
        say!("{value}");
    } else {
        output::print(&diagnosis.report);
    }
}

fn distribution(sample: &Sample) -> Value {
    let percentiles: Map<_, _> = PERCENTILES
        .iter()
        .filter_map(|percent| Some((percent.to_string(), json!(sample.percentile(*percent)?.value))))
        .collect();
    json!({ "name": sample.name(), "unit": sample.unit(), "count": sample.len(), "percentiles": percentiles })
}
