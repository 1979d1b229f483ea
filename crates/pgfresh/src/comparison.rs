//! Compares servers with different settings or in different locations by running the user's command on each of them in
//! turn. Implements `pgfresh run --compare` and `pgfresh bench suite`.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gateway::Budget;
use report::{
    Cell, Column, Contender, Factor, PhaseTimes, Progress, Quantity, Report, Rounds, Sample, Table, Tile,
    Timed, Unit, Warning,
};
use server::Preset;
use signal_hook::consts::{SIGHUP, SIGTERM};
use storage::{Place, PlaceError, PlaceRequest};
use sys::{ProcessorWatch, Roots, Shortage};
use template::{Provisioner, ServerOptions};

use crate::cancellation::die_by;
use crate::cli::{Run, ServiceOptions, Suite};
use crate::context::Context;
use crate::context::provisioning;
use crate::failed_tests::{self, failed_tests};
use crate::failure::Failure;
use crate::foreground;
use crate::lifecycle;
use crate::notice::{notice, print_notice};
use crate::over_budget;
use crate::report_file::{self, Format};
use crate::service::ServeOptions;
use crate::terminal_progress::{INTERRUPTED, TerminalProgress};
use crate::user_command::{self, NO_SESSION};
use crate::variable::Variable;

/// Maximum time until a new server's first databases are ready.
const SETTLE_TIMEOUT: Duration = Duration::from_mins(1);
/// Minimum exit code of a command killed by a signal.
const SIGNALLED: u8 = 128;
/// Number of output lines to show for a failed command.
const LAST_LINES: usize = 20;
/// Words that can follow a number in a test runner's summary, such as "passed".
const COUNTED: [&str; 9] =
    ["passed", "failed", "failures", "errors", "error", "skipped", "passing", "failing", "pending"];

/// The result of one run of the command.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Ended {
    code: u8,
    /// Counts in the test runner's output, keyed by the word after the number.
    counted: BTreeMap<String, u64>,
    /// True if the command connected to the server at least once.
    has_session: bool,
}

/// One side of a comparison, with the results of its runs.
struct Side {
    name: &'static str,
    provisioner: Provisioner,
    ended: RefCell<Vec<Ended>>,
    /// Tests that failed in every run on this side. `None` before the first run.
    failed: RefCell<Option<BTreeSet<String>>>,
    last_lines: RefCell<String>,
}

/// The command to compare, with the options for its service.
#[derive(Clone, Copy)]
struct Job<'a> {
    command: &'a [OsString],
    env: &'a [Variable],
    service: &'a ServiceOptions,
    port: u16,
    /// True while no command runs. Signals then kill pgfresh, whereas a running command gets them instead.
    between_runs: &'a Arc<AtomicBool>,
}

pub(crate) fn durable_and_ours(context: &Context, arguments: &Run) -> Result<ExitCode, Failure> {
    if let Some(file) = arguments.report.iter().find(|file| file.format == Format::Junit) {
        let failure = Failure::new(format!(
            "cannot write \"{}\": a comparison has no results for single tests",
            file.path.display()
        ));
        return Err(failure.hint("Use --profile for JUnit XML.".to_owned()));
    }
    let server_options = context.settings()?.with_template()?;
    let durable =
        ServerOptions { place: PlaceRequest::Disk, preset: Preset::Durable, ..server_options.clone() };
    let server_options = [("durable, on disk", durable), ("pgfresh", server_options)];
    let sides = Side::all(context, &arguments.service, server_options)?;
    let between_runs = &die_by(&[SIGTERM, SIGHUP])?;
    let (command, env, service) = (&arguments.command, &arguments.env, &arguments.service);
    let job = Job { command, env, service, port: arguments.port, between_runs };
    let progress = TerminalProgress::listen(context.verbosity)?.writing(arguments.report.clone())?;
    let (timed, shortage, end) = take_turns(context, job, &sides, arguments.rounds, &progress);
    let comparison = Comparison { timed: &timed, sides: &sides, command: job.command, shortage };
    let report = comparison.report();
    progress.finish();
    end?;
    report_file::publish(
        context.verbosity.is_quiet(),
        &|columns| comparison.summary(columns),
        &report,
        &|| report.to_html(""),
        &arguments.report,
    )?;
    if progress.is_cancelled() {
        return Err(Failure::new("interrupted").exit_with(INTERRUPTED));
    }
    Ok(worst(&sides))
}

/// Implements `pgfresh bench suite`: runs the command on three servers, a durable one on disk, a fast one on disk, and
/// one in RAM. Leaves out the last one if the system has no usable RAM file system.
pub(crate) fn suite(context: &Context, suite: &Suite) -> Result<ExitCode, Failure> {
    let server_options = context.settings()?.with_template()?;
    let disk = suite.path.clone().map_or(PlaceRequest::Disk, PlaceRequest::At);
    let on = |place: &PlaceRequest, preset| ServerOptions {
        place: place.clone(),
        preset,
        ..server_options.clone()
    };
    let service = ServiceOptions::default();
    let mut sides = Side::all(
        context,
        &service,
        [
            ("durable, on disk", on(&disk, Preset::Durable)),
            ("nothing flushed, on disk", on(&disk, Preset::Fast)),
            ("nothing flushed, in RAM", on(&PlaceRequest::Ram, Preset::Fast)),
        ],
    )?;
    if let Some(Err(error)) = sides.last().map(Side::find_ram) {
        notice!("pgfresh: compares without a server in RAM: {error}");
        sides.pop();
    }
    let between_runs = &die_by(&[SIGTERM, SIGHUP])?;
    let job = Job { command: &suite.command, env: &suite.env, service: &service, port: 0, between_runs };
    let progress = TerminalProgress::listen(context.verbosity)?.writing(suite.output.files())?;
    let (timed, shortage, end) = take_turns(context, job, &sides, suite.rounds, &progress);
    let comparison = Comparison { timed: &timed, sides: &sides, command: job.command, shortage };
    let report = comparison.report();
    if !progress.has_measured() {
        return Err(progress.why_nothing(end.err()));
    }
    progress.conclude(&report)?;
    report_file::print(&report, &suite.output.printed());
    print_notice(comparison.failures());
    end?;
    Ok(if progress.is_cancelled() { ExitCode::from(INTERRUPTED) } else { worst(&sides) })
}

/// Runs the job on each side in turn, sending finished rounds to `progress`. The result includes how much a CPU
/// shortage slowed the runs down.
fn take_turns(
    context: &Context,
    job: Job<'_>,
    sides: &[Side],
    rounds: u32,
    progress: &dyn Progress,
) -> (Vec<Timed>, Shortage, Result<(), Failure>) {
    let watch = ProcessorWatch::start(&Roots::default());
    let mut contenders: Vec<_> =
        sides.iter().map(|side| Contender::new(side.name, move || side.run(context, job))).collect();
    let report = |timed: &[Timed]| {
        Comparison { timed, sides, command: job.command, shortage: watch.shortage() }.report()
    };
    let (timed, end) = Rounds::new(0, rounds).time(&mut contenders, progress, Some(&report));
    (timed, watch.shortage(), end)
}

/// Returns the highest exit code of all runs.
fn worst(sides: &[Side]) -> ExitCode {
    let worst = |side: &Side| side.ended.borrow().iter().map(|ended| ended.code).max();
    ExitCode::from(sides.iter().filter_map(worst).max().unwrap_or_default())
}

impl Side {
    /// Creates sides with these names and builds their templates.
    fn all<const N: usize>(
        context: &Context,
        service: &ServiceOptions,
        server_options: [(&'static str, ServerOptions); N],
    ) -> Result<Vec<Self>, Failure> {
        let serving = ServeOptions::new(context.settings()?)?.with(service)?;
        if serving.budget != Budget::default() && !context.verbosity.is_quiet() {
            notice!("pgfresh: {}", over_budget::NOT_COMPARED);
        }
        let side = |(name, server_options)| {
            let provisioner = provisioning::provisioner(context, server_options)?;
            let provisioner = serving.encrypt_setups(provisioner);
            provisioning::prepare(context, &provisioner)?;
            let (ended, failed, last_lines) = Default::default();
            Ok(Self { name, provisioner, ended, failed, last_lines })
        };
        server_options.into_iter().map(side).collect()
    }

    /// Returns a place in RAM, or an error if the system doesn't have one.
    fn find_ram(&self) -> Result<Place, PlaceError> {
        let Provisioner { cache, account, .. } = &self.provisioner;
        Place::choose(&PlaceRequest::Ram, 0, cache.root(), account)
    }

    /// Runs the command once on a new server.
    fn run(&self, context: &Context, job: Job<'_>) -> Result<PhaseTimes, Failure> {
        let begun = Instant::now();
        let options = ServeOptions::new(context.settings()?)?.with(job.service)?.at_port(job.port);
        let serve_options = ServeOptions { budget: Budget::default(), ..options };
        let service = lifecycle::serve(context, &self.provisioner, serve_options)?;
        let path = service.server.run().path().join("output");
        let cannot = |error| Failure::new(format!("could not write \"{}\": {error}", path.display()));
        let output = File::options().append(true).create_new(true).open(&path).map_err(cannot)?;
        let mut command =
            user_command::command(job.command, job.env, &service, &self.provisioner.installation);
        command.stdin(Stdio::null()).stdout(output.try_clone().map_err(cannot)?).stderr(output);
        let started = begun.elapsed();
        // Wait for the prepared copies before measuring. A server without pgfresh wouldn't prepare copies, and on a
        // durable server, preparing them takes a while.
        service.leases.settle(SETTLE_TIMEOUT);
        let running = Instant::now();
        job.between_runs.store(false, Ordering::Relaxed);
        let code = foreground::run(Some(&service.server), command);
        job.between_runs.store(true, Ordering::Relaxed);
        let (code, ran) = (code?.code, running.elapsed());
        let text =
            fs::read(&path).map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default();
        let has_session = service.leases.has_had_clients();
        let stopping = Instant::now();
        lifecycle::stop(context, service)?;
        let stopped = stopping.elapsed();
        if code >= SIGNALLED {
            let failure = Failure::new(format!("the command was ended by signal {}", code - SIGNALLED));
            return Err(failure.exit_with(code));
        }
        if code != 0 {
            let lines: Vec<&str> = text.lines().collect();
            self.last_lines.replace(lines[lines.len().saturating_sub(LAST_LINES)..].join("\n"));
        }
        self.note_failed(if code == 0 { BTreeSet::new() } else { failed_tests(&text) });
        self.ended.borrow_mut().push(Ended { code, counted: counted(&text), has_session });
        Ok(vec![("start", started), ("suite", ran), ("stop", stopped)])
    }

    /// Records a run's failed tests, retaining only those that failed in every run so far.
    fn note_failed(&self, failed: BTreeSet<String>) {
        let mut all = self.failed.borrow_mut();
        *all = Some(match all.take() {
            Some(before) => before.intersection(&failed).cloned().collect(),
            None => failed,
        });
    }
}

/// Adds up the counts that test runners print in `text`, by word. Recognizes "272 passed", "Tests: 3 failed" and "ok.
/// 7 passed", for example.
fn counted(text: &str) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> =
            line.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
        for pair in words.windows(2) {
            let word = pair[1].to_ascii_lowercase();
            if let Ok(count) = pair[0].parse::<u64>()
                && COUNTED.contains(&word.as_str())
            {
                *sums.entry(word).or_default() += count;
            }
        }
    }
    sums
}

/// The results of all sides. The first side is the reference.
struct Comparison<'a> {
    timed: &'a [Timed],
    sides: &'a [Side],
    command: &'a [OsString],
    /// How much a CPU shortage slowed the runs down.
    shortage: Shortage,
}

impl Comparison<'_> {
    /// Returns true if all finished runs succeeded. A run that fails early is fast, but that isn't a gain.
    fn has_succeeded(&self) -> bool {
        self.sides.iter().all(|side| side.ended.borrow().iter().all(|ended| ended.code == 0))
    }

    /// Describes how many runs never connected to the server, or returns `None` if all of them did.
    fn unused(&self) -> Option<String> {
        let (mut all, mut unused) = (0, 0);
        for side in self.sides {
            let ended = side.ended.borrow();
            all += ended.len();
            unused += ended.iter().filter(|ended| !ended.has_session).count();
        }
        match unused {
            0 => None,
            _ if unused == all => Some(format!("{NO_SESSION} No gain is reported.")),
            _ => Some(format!("In {unused} of {all} runs, no session began, so no gain is reported.")),
        }
    }

    /// Returns the tests that failed in every run on every side. In other words, the choice of server makes no
    /// difference to them.
    fn failed_everywhere(&self) -> BTreeSet<String> {
        let sides = self.sides.iter().filter_map(|side| side.failed.borrow().clone());
        sides.reduce(|all, side| all.intersection(&side).cloned().collect()).unwrap_or_default()
    }

    /// Returns how many times as fast as the first side `ours` is, with a 95 % interval given at least six rounds.
    /// Returns `None` if a run failed or didn't use its server.
    fn gain(&self, ours: &Timed, of: impl Fn(&Timed) -> Sample) -> Option<(Factor, Sample)> {
        if !self.has_succeeded() || self.unused().is_some() {
            return None;
        }
        let ratios = of(self.timed.first()?).ratio_to(&of(ours)).ok()?;
        Some((Factor::of(&ratios)?, ratios))
    }

    /// Formats the gain. If there are too few rounds for an interval, adds the smallest and the largest gain.
    fn format_gain(&self, ours: &Timed, of: impl Fn(&Timed) -> Sample) -> Option<(String, String)> {
        Some(match self.gain(ours, of)? {
            (factor @ Factor::Interval(_), _) => (factor.to_string(), String::new()),
            (Factor::Point(point), ratios) => match (ratios.min(), ratios.max()) {
                (Some(least), Some(most)) if ratios.len() > 1 => {
                    (point.to_string(), format!(" ({least} to {most} in {} rounds)", ratios.len()))
                }
                _ => (point.to_string(), " (one round)".to_owned()),
            },
        })
    }

    /// Describes whether all runs had the same outcome.
    fn verdict(&self) -> String {
        let ended: Vec<Ended> = self.sides.iter().flat_map(|side| side.ended.borrow().clone()).collect();
        let Some(first) = ended.first() else { return "No run finished.".to_owned() };
        let counted: Vec<String> =
            first.counted.iter().map(|(word, count)| format!("{count} {word}")).collect();
        let counted = if counted.is_empty() { String::new() } else { format!(", {}", counted.join(", ")) };
        let no_gain =
            if self.has_succeeded() { "" } else { "; no gain is reported for a command that fails" };
        if ended.iter().all(|one| one == first) {
            let which = match ended.len() {
                1 => "The only run ended with".to_owned(),
                runs => format!("All {runs} runs ended the same way:"),
            };
            return format!("{which} exit code {}{counted}{no_gain}.", first.code);
        }
        let of_side = |side: &Side| {
            let ended = side.ended.borrow();
            let runs = ended.iter().map(|ended| {
                let counted: Vec<String> =
                    ended.counted.iter().map(|(word, count)| format!(", {count} {word}")).collect();
                format!("exit code {}{}", ended.code, counted.concat())
            });
            format!("{}: {}", side.name, runs.collect::<Vec<_>>().join("; "))
        };
        let sides: Vec<String> = self.sides.iter().map(of_side).collect();
        format!("The runs ended differently{no_gain}. {}.", sides.join(". "))
    }

    /// Formats the result with lines of at most `columns` columns, apart from what the command printed.
    fn summary(&self, columns: usize) -> String {
        let suite = |timed: &Timed| timed.sum(&["suite"]);
        let median =
            |timed: &Timed| suite(timed).median().map_or_else(String::new, |median| median.to_string());
        let mut lines = Vec::new();
        if let [stock, ours] = self.timed
            && let Some((gain, rounds)) = self.format_gain(ours, suite)
        {
            let (before, after) = (median(stock), median(ours));
            lines.push(format!(
                "with pgfresh {gain} as fast as on a durable server on disk{rounds}: {before} → {after}"
            ));
        }
        lines.push(self.verdict());
        lines.extend(self.unused());
        lines.extend(self.shortage.warning());
        let lines = lines.iter().map(|line| report::hang("pgfresh: ", line, columns));
        lines.collect::<String>() + &self.failures()
    }

    /// Returns the last output lines of each side's failed runs.
    fn failures(&self) -> String {
        let everywhere = failed_tests::describe(&self.failed_everywhere());
        let everywhere = everywhere.map(|text| format!("pgfresh: {text}\n"));
        let failed = self.sides.iter().filter(|side| !side.last_lines.borrow().is_empty());
        let lines = failed.map(|side| {
            let (name, last_lines) = (side.name, side.last_lines.borrow());
            format!("pgfresh: the last lines of a run that failed ({name}):\n{last_lines}\n")
        });
        lines.chain(everywhere).collect()
    }

    fn report(&self) -> Report {
        let mut report = Report::new(format!("Comparison of {}", user_command::to_line(self.command)));
        let version = self.sides[0].provisioner.installation.version().to_string();
        report.add_environment("PostgreSQL", version);
        report.add_tiles(self.tiles());
        let mut table = Table::numbers("Times", "server", ["start", "suite", "stop", "all of it"]);
        for timed in self.timed {
            let phases = ["start", "suite", "stop"].map(|name| timed.sum(&[name]).median().into());
            table.add_row(
                [Cell::from(timed.name())].into_iter().chain(phases).chain([timed.total().median().into()]),
            );
        }
        report.add_table(table);
        report.add_table(self.gains());
        for timed in self.timed {
            report.add_notes(Warning::of(&timed.sum(&["suite"])));
            report.add_samples(timed.name(), timed.phases().to_vec());
        }
        report.add_notes([self.verdict()]);
        report.add_notes(self.unused());
        report.add_notes(self.shortage.warning());
        report
    }

    /// Returns the key figures for the top of the page: the suite's time on each server, and the gains over the
    /// first server.
    fn tiles(&self) -> Vec<Tile> {
        let suite = |timed: &Timed| timed.sum(&["suite"]);
        let times = self.timed.iter().map(|timed| {
            let rounds = format!("median of {} runs", suite(timed).len());
            Tile::new(timed.name(), suite(timed).median(), rounds)
        });
        let gains = self.timed.iter().skip(1).filter_map(|timed| {
            let (factor, _) = self.gain(timed, suite)?;
            let (words, rounds) = self.format_gain(timed, suite)?;
            let note = format!("as fast{}", if rounds.is_empty() { format!(", {words}") } else { rounds });
            Some(Tile::new("Gain", Quantity::new(factor.point(), Unit::Ratio), note))
        });
        times.chain(gains).collect()
    }

    fn gains(&self) -> Table {
        let columns = [
            Column::left("server"),
            Column::left("what"),
            Column::right("gain"),
            Column::left("with its uncertainty"),
        ];
        let mut table = Table::new("How many times as fast", columns);
        for timed in self.timed.iter().skip(1) {
            for (name, phases) in [("suite", &["suite"][..]), ("all of it", &["start", "suite", "stop"])] {
                let of = |timed: &Timed| timed.sum(phases);
                let point =
                    self.gain(timed, of).map(|(factor, _)| Quantity::new(factor.point(), Unit::Ratio));
                let words = self.format_gain(timed, of).map(|(gain, rounds)| gain + &rounds);
                table.add_row([timed.name().into(), name.into(), point.into(), words.into()]);
            }
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runners_are_understood_by_their_words() {
        for (text, expected) in [
            ("==== 272 passed, 1 skipped in 19.41s ====", vec![("passed", 272), ("skipped", 1)]),
            (
                "test result: ok. 7 passed; 0 failed; 0 ignored\ntest result: ok. 3 passed; 1 failed",
                vec![("failed", 1), ("passed", 10)],
            ),
            ("Tests:       3 failed, 12 passed, 15 total", vec![("failed", 3), ("passed", 12)]),
            ("  8 passing (2s)\n  1 pending", vec![("passing", 8), ("pending", 1)]),
            ("30 examples, 2 failures", vec![("failures", 2)]),
            ("ok  \tlibrary/web\t0.3s", vec![]),
            ("", vec![]),
        ] {
            let expected = expected.into_iter().map(|(word, count)| (word.to_owned(), count)).collect();
            assert_eq!(counted(text), expected, "{text}");
        }
    }
}
