//! `pgfresh faults`: runs the command once for each combination of a statement and a fault, and reports the faults
//! that the application doesn't handle.

mod child;
mod parallel;
mod progress;
mod run_gate;
mod runner;
mod targets;
mod test_runner;
mod workers;

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::ffi::OsString;
use std::num::NonZero;
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread::available_parallelism;
use std::time::Instant;

use report::counted;
use trials::{Judgement, Point, RepeatableCommand, TimeSpent, TrialFinding, TrialsReport, TriedTest, points};

use self::progress::TrialsProgress;
use self::run_gate::RunGate;
use self::runner::Runner;
use self::targets::{Recorder, Targets};
use self::workers::{TriedPoint, Verdict, Workers};
use crate::cancellation::interruption_flag;
use crate::cli::{FaultTrials, USAGE};
use crate::context::Context;
use crate::context::provisioning;
use crate::failure::Failure;
use crate::lifecycle;
use crate::report_file;
use crate::service::ServeOptions;
use crate::terminal_progress::INTERRUPTED;
use crate::user_command;

/// Exit code if there are findings.
const FOUND: u8 = 1;
/// Maximum number of names in an error message.
const SHOWN: usize = 3;

pub(crate) fn execute(context: &Context, arguments: &FaultTrials) -> Result<ExitCode, Failure> {
    report_file::expect_writable(&arguments.report)?;
    let provisioner = context.provisioner()?;
    provisioning::prepare(context, provisioner)?;
    lifecycle::sweep(context, provisioner);
    let options = ServeOptions::new(context.settings()?)?.for_command(&arguments.command);
    let interrupted = interruption_flag()?;
    let runner = Runner {
        provisioner,
        options,
        env: &arguments.env,
        interrupted: &interrupted,
        time: Mutex::default(),
    };
    let begun = Instant::now();
    let gate = RunGate::new(arguments.budget, &interrupted);
    let jobs = arguments.jobs.map_or_else(
        || available_parallelism().map_or(1, NonZero::get),
        |jobs| usize::try_from(jobs).unwrap_or(1),
    );
    let mut report = try_all(context, &runner, &gate, arguments, jobs)?;
    report.command = repeatable(&env::args_os().collect::<Vec<_>>(), &arguments.command);
    report.postgres = provisioner.installation.version().to_string();
    report.seconds = begun.elapsed().as_secs_f64();
    report.time = TimeSpent { jobs, ..*sys::lock(&runner.time) };
    publish(&report, arguments)?;
    let is_interrupted = gate.is_interrupted();
    match gate.take_failure() {
        Some(failure) => Err(failure),
        None if !report.passes() => Ok(ExitCode::from(FOUND)),
        None if is_interrupted => Ok(ExitCode::from(INTERRUPTED)),
        None if report.runs == 0 => Err(no_fault(&report)),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Records the command without faults, then tries faults until the gate closes.
fn try_all(
    context: &Context,
    runner: &Runner<'_>,
    gate: &RunGate<'_>,
    arguments: &FaultTrials,
    jobs: usize,
) -> Result<TrialsReport, Failure> {
    let progress = TrialsProgress::new(context.verbosity);
    let targets = Recorder { runner, gate, arguments, jobs, progress: &progress }.record()?;
    let (all, unsteady) = points(targets.leases());
    // Check names only if all tests were recorded. Otherwise, a name may belong to a test that pgfresh
    // hasn't recorded.
    let is_whole = gate.closed().is_none() && targets.left_out.is_empty();
    let chosen = match trials::chosen(&all, &arguments.only) {
        Ok(chosen) => chosen,
        Err(name) if is_whole => return Err(no_such_point(name, &all)),
        Err(_) => Vec::new(),
    };
    if is_whole && let Some(name) = arguments.ignore.iter().find(|name| !targets.have_table(name)) {
        return Err(no_such_table(name));
    }
    let tried = Workers { runner, gate, targets: &targets, jobs, progress: &progress }.try_all(&chosen);
    let mut report =
        TrialsReport { unseen: targets.unseen.iter().cloned().collect(), ..TrialsReport::default() };
    if unsteady > 0 {
        let statements = counted(unsteady, "statement that does", "statements that do");
        report.unseen.push(format!("{statements} not run every time"));
    }
    report.not_run_because = gate.closed().map_or_else(String::new, |closed| gate.reason(closed));
    count(&mut report, tried);
    report.tests = tried_tests(&report, &targets, &chosen, arguments.only.is_empty());
    report.left_out = targets.left_out;
    report.left_out.sort();
    Ok(report)
}

fn no_such_point(name: &str, all: &[Point]) -> Failure {
    let names: BTreeSet<_> = all.iter().map(ToString::to_string).collect();
    let shown: Vec<_> = names.iter().take(SHOWN).map(|name| format!("\"{name}\"")).collect();
    let failure =
        Failure::new(format!("no fault has a name that begins with \"{name}\" (--only)")).exit_with(USAGE);
    failure.hint(if shown.is_empty() {
        "No fault can be injected into a statement of the command.".to_owned()
    } else {
        format!("There are {}, such as {}.", counted(names.len(), "fault", "faults"), shown.join(", "))
    })
}

fn no_such_table(name: &str) -> Failure {
    let failure =
        Failure::new(format!("no table and no column has the name \"{name}\" (--ignore)")).exit_with(USAGE);
    failure.hint("Write TABLE or TABLE.COLUMN, with or without the schema before it.".to_owned())
}

/// Builds the error for trials that never ran the command with a fault. Such trials prove nothing about the
/// application, so they fail.
fn no_fault(report: &TrialsReport) -> Failure {
    let failure = Failure::new("no fault was tried");
    failure.hint(if !report.not_run.is_empty() {
        "Increase --budget, or use --only to run some of the tests.".to_owned()
    } else if let Some(test) = report.left_out.first() {
        format!("The test \"{}\" was left out: {}.", test.test, test.because)
    } else {
        "Faults can only be injected into statements that read or write tables and run in the same order every time.".to_owned()
    })
}

/// Counts the results and collects the findings among them, sorted by test, statement and fault.
fn count(report: &mut TrialsReport, tried: Vec<TriedPoint>) {
    for TriedPoint { point, verdict, output } in tried {
        let finding = |kind| TrialFinding { point: point.clone(), kind, output };
        match verdict {
            Verdict::NotRun => report.not_run.push(point),
            Verdict::SeenOnce(kind) => report.seen_once.push(finding(kind)),
            Verdict::Unconfirmed(kind) => report.unconfirmed.push(finding(kind)),
            Verdict::Judged(Judgement::Finding(kind)) => report.findings.push(finding(kind)),
            Verdict::Judged(Judgement::NotReached) => report.not_reached += 1,
            Verdict::Judged(Judgement::Recovered) => report.recovered += 1,
            Verdict::Judged(Judgement::Passed) => report.passed += 1,
            Verdict::Judged(Judgement::Shown { .. }) => report.shown += 1,
        }
    }
    let others = report.not_reached + report.recovered + report.passed + report.shown;
    report.runs = others + report.findings.len() + report.unconfirmed.len() + report.seen_once.len();
    for findings in [&mut report.findings, &mut report.seen_once, &mut report.unconfirmed] {
        findings.sort_by_key(|finding| {
            let Point { label, pattern, nth, fault, .. } = &finding.point;
            (label.clone(), pattern.clone(), *nth, *fault)
        });
    }
}

/// Returns the tests with their numbers of faults. With `all`, the list includes tests without faults.
fn tried_tests(report: &TrialsReport, targets: &Targets, chosen: &[Point], all: bool) -> Vec<TriedTest> {
    let numbers = |points: &mut dyn Iterator<Item = &Point>| {
        let mut numbers = BTreeMap::<String, usize>::new();
        points.for_each(|point| *numbers.entry(point.label.clone()).or_default() += 1);
        numbers
    };
    let (chosen, not_run) = (numbers(&mut chosen.iter()), numbers(&mut report.not_run.iter()));
    let labels =
        targets.leases().map(|lease| &lease.label).filter(|label| all || chosen.contains_key(*label));
    let of_label = |label: &String| {
        let number = |numbers: &BTreeMap<String, usize>| numbers.get(label).copied().unwrap_or_default();
        let (chosen, not_run) = (number(&chosen), number(&not_run));
        TriedTest { label: label.clone(), runs: chosen - not_run, not_run }
    };
    labels.map(of_label).collect()
}

/// Returns the command line without passwords and without the options that only matter for the current invocation.
fn repeatable(words: &[OsString], command: &[OsString]) -> RepeatableCommand {
    let ours = &words[1..words.len().saturating_sub(command.len()).max(1)];
    let options = lasting(user_command::without_passwords(ours));
    RepeatableCommand { options, words: user_command::without_passwords(command) }
}

/// Removes the first word, which is `faults`, and the options that don't matter for a single fault.
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

/// Writes the report files and prints the report on standard output.
fn publish(report: &TrialsReport, arguments: &FaultTrials) -> Result<(), Failure> {
    let document = report.report();
    let written =
        report_file::write_each(&arguments.report, |file| file.write(&document, &|| document.to_html("")));
    report_file::append_to_step_summary(&document.to_markdown());
    let text = report_file::for_output(arguments.json, &document, |columns| report.to_text(columns));
    report_file::print_after_files(written, text)
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
