//! `pgfresh doctor`: finds out why PostgreSQL is slow and which remedies help.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use doctor::{Diagnosis, Examination, RemoteExamination, Tests};
use report::{Earlier, Progress, Sample};
use serde_json::{Map, Value, json};
use template::{ProvisionError, Provisioner};

use crate::cli::Doctor;
use crate::context::Context;
use crate::context::provisioning;
use crate::disk;
use crate::failure::Failure;
use crate::report_file;
use crate::terminal_progress::{INTERRUPTED, TerminalProgress};

/// Durations of the measurement: by default, and with `--quick`.
const LENGTH: [Duration; 2] = [Duration::from_secs(9), Duration::from_millis(2500)];
/// Percentiles of each distribution to include in the JSON output.
const PERCENTILES: [f64; 7] = [1.0, 10.0, 50.0, 90.0, 99.0, 99.9, 100.0];

pub(crate) fn execute(context: &Context, arguments: &Doctor) -> Result<ExitCode, Failure> {
    report_file::expect_writable(&arguments.report)?;
    let roots = disk::roots(arguments.sysfs.clone(), arguments.procfs.clone());
    let progress = TerminalProgress::listen(context.verbosity)?;
    let length = LENGTH[usize::from(arguments.quick)];
    if let Some(url) = &arguments.url {
        // Examining the server behind a URL doesn't need a pgfresh server. Without an installation, the psql on
        // PATH suffices.
        let target = server::ConnectionString::parse(url)?;
        let psql = context.settings().and_then(|settings| {
            let server_options = settings.server_options.clone();
            let provisioner = provisioning::find_installed(server_options, context.cache()?)?;
            provisioning::find_psql(&provisioner.installation)
        });
        let psql = psql.unwrap_or_else(|_| PathBuf::from("psql"));
        let diagnosis = RemoteExamination { target, psql, length }.diagnose(&progress);
        progress.finish();
        // Ctrl-C also kills psql, so psql's failure may only mean that the user canceled.
        if progress.is_cancelled() {
            return Err(progress.why_nothing(None));
        }
        publish(&diagnosis?, arguments)?;
        return Ok(ExitCode::SUCCESS);
    }
    let examination = Examination {
        path: disk::path(context, arguments.path.as_deref())?,
        roots,
        length,
        soak: arguments.soak,
        suite: suite(arguments)?,
        try_remedies: arguments.r#try,
        all_rows: context.verbosity.is_verbose() || arguments.json,
        program: sys::this_program().to_owned(),
        provisioner: provisioner(context)?,
    };
    let diagnosis = examination.diagnose(&progress)?;
    progress.finish();
    if progress.is_cancelled() && diagnosis.samples.iter().all(Sample::is_empty) {
        return Err(progress.why_nothing(None));
    }
    publish(&diagnosis, arguments)?;
    if let (Some(why), Some(_)) = (&diagnosis.without_servers, &arguments.suite) {
        return Err(Failure::new(format!("could not examine the suite: {why}")));
    }
    let stopped = progress.is_cancelled();
    Ok(if stopped { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
}

/// Returns the tests the user specified, either as a command or as a profile.
fn suite(arguments: &Doctor) -> Result<Option<Tests>, Failure> {
    let Some(path) = &arguments.profile else { return Ok(arguments.suite.clone().map(Tests::Command)) };
    let unreadable =
        |why: &dyn std::fmt::Display| Failure::new(format!("could not read \"{}\": {why}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| unreadable(&error))?;
    let hint = "Create a report with \"pgfresh run --profile --report profile.json -- COMMAND\".";
    let wrong = |why: &str| unreadable(&why).hint(hint.to_owned());
    let earlier = Earlier::read(&text).map_err(|_| wrong("it is not a JSON report"))?;
    if earlier.layer("Suite").is_none() {
        return Err(wrong("it is a report, but not of a suite"));
    }
    Ok(Some(Tests::Profile(earlier)))
}

/// Finds everything that servers need. Without an installation, the diagnosis is limited to the disk.
fn provisioner(context: &Context) -> Result<Result<Provisioner, ProvisionError>, Failure> {
    let server_options = context.settings()?.with_template()?;
    let provisioner = provisioning::find_installed(server_options, context.cache()?);
    if let Ok(provisioner) = &provisioner {
        // Sweep first, as every server start does.
        let (_, failures) = provisioner.sweep();
        for failure in failures {
            tracing::warn!("{}", Failure::from(failure).on_one_line());
        }
    }
    Ok(provisioner)
}

/// Prints the diagnosis and writes the report files.
fn publish(diagnosis: &Diagnosis, arguments: &Doctor) -> Result<(), Failure> {
    let mut report = diagnosis.report.clone();
    report.add_data("distributions", diagnosis.samples.iter().map(distribution).collect());
    let written =
        report_file::write_each(&arguments.report, |file| file.write(&report, &|| diagnosis.to_html()));
    let text = report_file::for_output(arguments.json, &report, |columns| report.to_text(columns));
    report_file::print_after_files(written, text)
}

fn distribution(sample: &Sample) -> Value {
    let percentiles: Map<_, _> = PERCENTILES
        .iter()
        .filter_map(|percent| Some((percent.to_string(), json!(sample.percentile(*percent)?.value))))
        .collect();
    json!({ "name": sample.name(), "unit": sample.unit(), "count": sample.len(), "percentiles": percentiles })
}
