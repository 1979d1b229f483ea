//! Determines production's query plans for a run's statements: reads production's statistics before the command runs,
//! and explains the statements on a scratch server afterwards.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

use plans::{Applied, Baseline, Limits, PlanBudget, PlanReport, Scratch, Statistics, StatisticsSummary};
use server::printable;
use template::Provisioner;

use crate::bounded_file;
use crate::cancellation::{SIGNALS, die_by};
use crate::cli::Run;
use crate::context::Context;
use crate::failure::Failure;
use crate::notice::notice;
use crate::production_statistics;
use crate::report_file;
use crate::settings::ResolvedSettings;
use crate::suite_statements::SuiteStatements;

/// Maximum size of a baseline in bytes.
const MOST_BASELINE: u64 = 256_000_000;

/// Options for explaining a run's statements.
#[derive(Debug)]
pub(crate) struct PlanOptions {
    statistics: Statistics,
    budget: PlanBudget,
    baseline: Option<BaselineFile>,
}

#[derive(Debug)]
struct BaselineFile {
    path: PathBuf,
    /// Contents of the baseline file. `None` if the run writes the file.
    contents: Option<Baseline>,
}

impl PlanOptions {
    /// Reads the statistics and the baseline. Returns `None` if the user didn't request plans.
    pub(crate) fn read(settings: &ResolvedSettings, arguments: &Run) -> Result<Option<Self>, Failure> {
        if !arguments.plans {
            return Ok(None);
        }
        let statistics = production_statistics::read(settings, arguments.statistics.as_deref())?;
        let baseline = arguments.plans_baseline.as_ref().or(settings.plans.baseline.as_ref());
        if arguments.update_baseline && baseline.is_none() {
            let failure = Failure::new("cannot update a baseline: its file is not given");
            return Err(
                failure.hint("Use --plans-baseline FILE, or [plans] baseline in pgfresh.toml.".to_owned())
            );
        }
        let baseline =
            baseline.map(|path| BaselineFile::read(path, arguments.update_baseline)).transpose()?;
        Ok(Some(Self { statistics, budget: settings.plans.budget, baseline }))
    }

    /// Explains the statements. A signal kills pgfresh in the meantime, and the scratch server's guard then cleans up.
    pub(crate) fn explain(
        self,
        context: &Context,
        provisioner: &Provisioner,
        suite: &SuiteStatements,
    ) -> Result<ExplainedRun, Failure> {
        let Self { statistics, budget, baseline } = self;
        let statements = &suite.planned;
        let begun = Instant::now();
        die_by(&SIGNALS)?;
        if !context.verbosity.is_quiet() {
            let texts: BTreeSet<&str> =
                statements.iter().map(|statement| statement.normalized.as_str()).collect();
            let count = texts.len();
            let statements = if count == 1 { "statement" } else { "statements" };
            notice!("pgfresh: explaining {count} {statements} with production's statistics");
        }
        let (mut scratch, applied) = Scratch::start(provisioner, &statistics)?;
        let mut analysis = plans::analyze(&mut scratch, statements, &Limits::default());
        scratch.stop()?;
        let major = provisioner.installation.version().major;
        analysis.notes.extend(production_statistics::other_major(&statistics, major));
        let changes = baseline.as_ref().and_then(|file| file.contents.as_ref());
        let report = PlanReport {
            statistics: StatisticsSummary::of(&statistics),
            postgres: provisioner.installation.version().to_string(),
            left_out: left_out(&applied, &statistics),
            unseen: suite.unplanned(),
            changes: changes.map(|baseline| baseline.changes(&analysis)),
            over_budget: budget.exceeded(&analysis),
            analysis,
            seconds: begun.elapsed().as_secs_f64(),
        };
        Ok(ExplainedRun { report, baseline, major, is_empty: statements.is_empty() })
    }
}

impl BaselineFile {
    fn read(path: &Path, update: bool) -> Result<Self, Failure> {
        let path = path.to_owned();
        if update {
            report_file::expect_writable_path(&path)?;
            return Ok(Self { path, contents: None });
        }
        let cannot = |error: &dyn std::fmt::Display| {
            Failure::new(format!("could not read the baseline \"{}\": {error}", path.display()))
                .hint("--update-baseline writes a new one.".to_owned())
        };
        let text = bounded_file::read_text(&path, MOST_BASELINE).map_err(|error| cannot(&error))?;
        let contents = Baseline::parse(&text).map_err(|error| cannot(&error))?;
        Ok(Self { path, contents: Some(contents) })
    }
}

/// The plans of a run's statements, after the command has ended.
#[derive(Debug)]
pub(crate) struct ExplainedRun {
    pub(crate) report: PlanReport,
    baseline: Option<BaselineFile>,
    /// Major version of the scratch server.
    major: u32,
    /// True if pgfresh didn't collect any statements.
    is_empty: bool,
}

impl ExplainedRun {
    /// Writes the baseline if the user requested that, unless the command failed with `code`: a failed command might
    /// not have run all statements.
    pub(crate) fn update_baseline(&self, code: u8) -> Result<(), Failure> {
        let Some(BaselineFile { path, contents: None }) = &self.baseline else { return Ok(()) };
        let name = path.display();
        if code != 0 {
            notice!("pgfresh: did not write \"{name}\", because the command failed");
            return Ok(());
        }
        if self.report.analysis.statements.is_empty() && !self.is_empty {
            return Err(Failure::new(format!("did not write \"{name}\": no statement could be explained")));
        }
        let day = self.report.statistics.day.clone();
        let baseline = Baseline::of(&self.report.analysis, day, self.major);
        report_file::write(path, &baseline.to_json())?;
        let count = self.report.analysis.statements.len();
        let statements = if count == 1 { "statement" } else { "statements" };
        notice!("pgfresh: wrote the plans of {count} {statements} to \"{name}\"");
        Ok(())
    }

    /// Prints the plans that exceed the budget or differ from the baseline. Returns true if there are any.
    pub(crate) fn print_failures(&self) -> bool {
        let over = self.report.budget_message();
        let name = self.baseline.as_ref().map(|file| file.path.display().to_string());
        let changed = name.and_then(|name| self.report.baseline_message(&name));
        for message in over.iter().chain(&changed) {
            let lines: Vec<_> = message.lines().map(printable).collect();
            notice!("pgfresh: {}", lines.join("\n"));
        }
        over.is_some() || changed.is_some()
    }
}

/// Returns a sentence for each reason why statistics are missing.
fn left_out(applied: &Applied, statistics: &Statistics) -> Vec<String> {
    let is_foreign = applied.tables == 0 && !statistics.relations.is_empty();
    let foreign =
        "the template has none of the tables in the statistics, which may come from a different database";
    is_foreign.then(|| foreign.to_owned()).into_iter().chain(applied.summary()).collect()
}
