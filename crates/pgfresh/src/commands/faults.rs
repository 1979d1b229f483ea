//! `pgfresh faults`: runs the command once for each fault at each statement, and reports those that it does not cope with.

mod child;
mod parallel;
mod progress;
mod runner;
mod targets;
mod workers;

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::io;
use std::num::NonZero;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::available_parallelism;
use std::time::Instant;

use report::counted;
use sweep::{Judgement, Point, RepeatableCommand, SweepFinding, SweepReport, compare_with_retries, points};

use self::progress::SweepProgress;
use self::runner::Runner;
use self::targets::Targets;
use self::workers::JudgedPoint;
use crate::cancellation::cancel_flag;
use crate::cli::{FaultSweep, USAGE};
use crate::context::Context;
use crate::context::provisioning;
use crate::failure::Failure;
use crate::lifecycle;
use crate::output::{print, print_line};
use crate::report_file;
use crate::service::ServeOptions;
use crate::terminal_progress::INTERRUPTED;
use crate::user_command;

/// Exit code if there are findings.
const FOUND: u8 = 1;
/// Number of names that an error shows.
const SHOWN: usize = 10;

pub(crate) fn execute(context: &Context, arguments: &FaultSweep) -> Result<ExitCode, Failure> {
    report_file::expect_writable(&arguments.report)?;
    let provisioner = context.provisioner()?;
    provisioning::prepare(context, provisioner)?;
    lifecycle::sweep(context, provisioner);
    let options = ServeOptions::new(context.settings()?)?.for_command(&arguments.command);
    let cancelled = cancel_flag()?;
    let runner = Runner { provisioner, options, env: &arguments.env, cancelled: &cancelled };
    let begun = Instant::now();
    let Some(mut report) = sweep(context, &runner, arguments)? else {
        return Ok(ExitCode::from(INTERRUPTED));
    };
    report.command = repeatable(&env::args_os().collect::<Vec<_>>(), &arguments.command);
    report.postgres = provisioner.installation.version().to_string();
    report.seconds = begun.elapsed().as_secs_f64();
    publish(&report, arguments)?;
    Ok(match report.passes() {
        false => ExitCode::from(FOUND),
        true if cancelled.load(Ordering::Relaxed) => ExitCode::from(INTERRUPTED),
        true => ExitCode::SUCCESS,
    })
}

/// Runs the sweep. Returns `None` if a signal arrives before the first run with a fault.
fn sweep(
    context: &Context,
    runner: &Runner<'_>,
    arguments: &FaultSweep,
) -> Result<Option<SweepReport>, Failure> {
    let jobs = arguments.jobs.map_or_else(
        || available_parallelism().map_or(1, NonZero::get),
        |jobs| usize::try_from(jobs).unwrap_or(1),
    );
    let progress = SweepProgress::new(context.verbosity);
    let Some(targets) = Targets::record(runner, &arguments.command, &arguments.only, jobs, &progress)? else {
        return Ok(None);
    };
    let (all, unsteady) = points(targets.leases());
    let chosen = sweep::chosen(all.clone(), &arguments.only);
    if chosen.is_empty() && !arguments.only.is_empty() {
        return Err(no_such_point(&all));
    }
    let mut unseen = targets.unseen.clone();
    if unsteady > 0 {
        let statements = counted(unsteady, "statement that does", "statements that do");
        unseen.insert(format!("{statements} not run each time"));
    }
    let total = chosen.len();
    let judged = workers::run(runner, &targets, &chosen, jobs, arguments.budget, &progress)?;
    Ok(Some(report_of(judged, total, unseen, arguments, runner.cancelled)))
}

fn no_such_point(all: &[Point]) -> Failure {
    let names: BTreeSet<_> = all.iter().map(ToString::to_string).collect();
    let shown: Vec<_> = names.iter().take(SHOWN).map(|name| format!("\"{name}\"")).collect();
    let failure = Failure::new("no fault has the name of --only").exit_with(USAGE);
    failure.hint(format!("There are {} faults, such as {}.", names.len(), shown.join(", ")))
}

/// Counts the results, and returns those that are findings, sorted by test, statement and fault.
fn report_of(
    judged: Vec<JudgedPoint>,
    total: usize,
    unseen: BTreeSet<String>,
    arguments: &FaultSweep,
    cancelled: &AtomicBool,
) -> SweepReport {
    let is_interrupted = cancelled.load(Ordering::Relaxed);
    let runs = judged.len();
    let because = if is_interrupted {
        "a signal has ended the sweep".to_owned()
    } else {
        format!("the budget of {} s is spent: --budget sets another", arguments.budget.as_secs())
    };
    let mut report = SweepReport {
        runs,
        not_run: total - runs,
        not_run_because: because,
        unseen: unseen.into_iter().collect(),
        ..SweepReport::default()
    };
    let mut results = Vec::new();
    let mut outputs = Vec::new();
    for JudgedPoint { point, judgement, output } in judged {
        match judgement {
            Some(judgement) => {
                results.push((point, judgement));
                outputs.push(output);
            }
            None => report.unconfirmed += 1,
        }
    }
    compare_with_retries(&mut results);
    for ((point, judgement), output) in results.into_iter().zip(outputs) {
        match judgement {
            Judgement::NotReached => report.not_reached += 1,
            Judgement::Recovered => report.recovered += 1,
            Judgement::Passed => report.passed += 1,
            Judgement::Shown { .. } => report.shown += 1,
            Judgement::Finding(kind) => report.findings.push(SweepFinding { point, kind, output }),
        }
    }
    let place = |finding: &SweepFinding| {
        let Point { label, pattern, nth, fault, .. } = &finding.point;
        (label.clone(), pattern.clone(), *nth, *fault)
    };
    report.findings.sort_by_key(place);
    report
}

/// Returns the command line without passwords, and without what belongs to this sweep alone.
fn repeatable(words: &[OsString], command: &[OsString]) -> RepeatableCommand {
    let ours = &words[1..words.len().saturating_sub(command.len()).max(1)];
    let options = lasting(user_command::without_passwords(ours));
    RepeatableCommand { options, words: user_command::without_passwords(command) }
}

/// Leaves out the name of the command, which comes first, and the options that do not matter for a single fault.
fn lasting(words: Vec<String>) -> Vec<String> {
    let (left_out, options) = (["--json", "--"], ["--only", "--budget", "--jobs", "-j", "--report"]);
    let mut words = words.into_iter().skip(1);
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        let name = word.split_once('=').map_or(word.as_str(), |(name, _)| name);
        if options.contains(&word.as_str()) {
            words.next();
        } else if !options.contains(&name) && !left_out.contains(&name) {
            kept.push(word);
        }
    }
    kept
}

/// Prints the report on standard output and writes the files.
fn publish(report: &SweepReport, arguments: &FaultSweep) -> Result<(), Failure> {
    let document = report.report();
    if arguments.json {
        print_line!("{}", document.to_json());
    } else {
        print(report.to_text(sys::terminal_width(io::stdout()).unwrap_or(usize::MAX)));
    }
    arguments.report.iter().try_for_each(|file| file.write(&document, &|| document.to_html("")))?;
    report_file::append_to_step_summary(&document.to_markdown())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_command_keeps_lasting_options() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        for (given, kept) in [
            (
                "--jobs 2 --template faults --only=a --report f.md --json -j 3 --config c.toml",
                "--template faults --config c.toml",
            ),
            ("--env URL=postgres://u:secret@h/d", "--env URL=postgres://u:…@h/d"),
        ] {
            let repeated =
                repeatable(&words(&format!("pgfresh faults {given} -- psql -c")), &words("psql -c"));
            assert_eq!(
                (repeated.options.join(" "), repeated.words.join(" ")),
                (kept.to_owned(), "psql -c".to_owned())
            );
        }
    }
}
