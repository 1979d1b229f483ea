//! Turns a migration command's transcripts into a report.

use std::error::Error;
use std::path::Path;

use migrations::suite::{self, SuiteError, SuiteRecording};
use migrations::{
    Laboratory, MigrationReport, Observations, Production, Speeds, TableRows, TableSize, TemplateTables,
    advise, apply_exceptions, fact_assumptions, predict, predict_held, prediction_assumptions, unpredicted,
};
use pgwire::SessionTranscript;
use plans::{Statistics, StatisticsSummary};
use server::{AdminConnection, SessionError};

use super::base::Base;
use super::origins;
use crate::cli::CheckMigrations;
use crate::context::Context;
use crate::failure::Failure;
use crate::production_statistics;
use crate::settings::MigrateSettings;

/// The data that a check compares the migration with, all read before the migration runs.
#[derive(Debug)]
pub(super) struct Inputs {
    statistics: Option<Statistics>,
    rows: Vec<TableRows>,
    suite: Option<SuiteRecording>,
}

impl Inputs {
    pub(super) fn read(context: &Context, arguments: &CheckMigrations) -> Result<Self, Failure> {
        let settings = context.settings()?;
        let file = arguments.statistics.as_deref().or(settings.plans.statistics.as_deref());
        let statistics = file.map(production_statistics::read_file).transpose()?;
        let suite = match &arguments.statements {
            Some(path) => Some(SuiteRecording::read(path).map_err(|error| no_recording(path, &error))?),
            None => SuiteRecording::of_project(&context.cache()?, &settings.folder)
                .map_err(|error| Failure::new(format!("could not read the recorded statements: {error}")))?,
        };
        Ok(Self { statistics, rows: arguments.rows.clone(), suite })
    }

    /// Checks that the older template has the tables named by `--rows`.
    pub(super) fn expect_tables(&self, base: &Base) -> Result<(), Failure> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let mut laboratory = Laboratory::start(&base.provisioner)?;
        let database = laboratory.fresh_database()?;
        let mut session = laboratory.session(&database)?;
        let tables = TemplateTables::read(&mut session).map_err(session_failed)?;
        drop(session);
        laboratory.stop()?;
        Ok(tables.expect(&self.rows)?)
    }

    fn has_sizes(&self) -> bool {
        self.statistics.is_some() || !self.rows.is_empty()
    }

    /// Describes where production's table sizes come from.
    fn source(&self) -> Option<String> {
        let statistics = self
            .statistics
            .as_ref()
            .map(|statistics| format!("statistics of {}", StatisticsSummary::of(statistics).day));
        let rows = (!self.rows.is_empty()).then(|| "--rows".to_owned());
        let sources: Vec<_> = statistics.into_iter().chain(rows).collect();
        (!sources.is_empty()).then(|| sources.join(" and "))
    }
}

fn session_failed(error: SessionError) -> Failure {
    server::StartError::from(error).into()
}

fn no_recording(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("could not read the statements in \"{}\": {error}", path.display()))
        .hint("\"pgfresh run --statements FILE -- COMMAND\" writes such a file.".to_owned())
}

/// Observes the migration on a scratch server and judges it.
pub(super) fn analyze(
    base: &Base,
    settings: &MigrateSettings,
    inputs: &Inputs,
    transcripts: &[SessionTranscript],
) -> Result<MigrationReport, Failure> {
    let mut laboratory = Laboratory::start(&base.provisioner)?;
    let observations = laboratory.observe(transcripts)?;
    let mut report = MigrationReport::of(observations.clone());
    origins::name(base, &observations, &mut report)?;
    if inputs.has_sizes() {
        add_predictions(&mut laboratory, inputs, &observations, &mut report)?;
    }
    match &inputs.suite {
        Some(recording) => add_suite(&mut laboratory, recording, &mut report)?,
        None => report.unseen.push(
            "the statements of your suite: \"pgfresh run --profile -- COMMAND\" records them once".to_owned(),
        ),
    }
    laboratory.stop()?;
    report.assumptions.extend(fact_assumptions(&report.statements));
    add_advice(&observations, inputs.suite.is_some(), &mut report);
    judge(settings, inputs.has_sizes(), &mut report);
    report.run.production = inputs.source();
    Ok(report)
}

fn add_predictions(
    laboratory: &mut Laboratory,
    inputs: &Inputs,
    observations: &Observations,
    report: &mut MigrationReport,
) -> Result<(), Failure> {
    let database = laboratory.fresh_database()?;
    let mut session = laboratory.session(&database)?;
    let template = TemplateTables::read(&mut session).map_err(session_failed)?;
    let statistics = inputs.statistics.as_ref();
    let production = Production::new(&template, &observations.sizes, statistics, &inputs.rows)?;
    let speeds = Speeds::measure(&mut session).map_err(session_failed)?;
    let predicted = predict(observations, &production, &speeds);
    let held = predict_held(observations, &predicted);
    for ((statement, predicted), held) in report.statements.iter_mut().zip(&predicted).zip(held) {
        (statement.predicted, statement.predicted_held) = (*predicted, held);
    }
    for table in &mut report.tables {
        let size = production.size_of(&table.relation);
        table.production = size.map(|(rows, bytes)| TableSize { rows, bytes });
    }
    if predicted.iter().any(Option::is_some) {
        report.assumptions = prediction_assumptions(&production);
    }
    report.unseen.extend(unpredicted(observations, &production));
    Ok(())
}

/// Adds the suite's statements that wait for the migration or fail after it.
fn add_suite(
    laboratory: &mut Laboratory,
    recording: &SuiteRecording,
    report: &mut MigrationReport,
) -> Result<(), Failure> {
    let before = laboratory.fresh_database()?;
    let migrated = laboratory.migrated_database().to_owned();
    let sessions = [laboratory.session(&before)?, laboratory.session(&migrated)?];
    if let Err(error) = compare_suite(sessions, &migrated, recording, report) {
        // The report is useful even without the suite's statements, so continue.
        let cause = error.source().map(|source| format!(": {source}")).unwrap_or_default();
        report.unseen.push(format!("the statements of your suite, because pgfresh {error}{cause}"));
    }
    report.unseen.extend(recording.missing.iter().cloned());
    Ok(())
}

/// Adds the suite's statements that wait for one of the migration's statements in the database `migrated`, and the
/// suite's statements that fail there. The first session's database is in the state before the migration, and the
/// second session's in the state after it.
fn compare_suite(
    [mut before, mut after]: [AdminConnection; 2],
    migrated: &str,
    recording: &SuiteRecording,
    report: &mut MigrationReport,
) -> Result<(), SuiteError> {
    let needs = suite::needs(&mut before, &recording.statements)?;
    let ours =
        report.statements.iter_mut().filter(|one| !one.is_bookkeeping && one.observed.database == migrated);
    for statement in ours {
        statement.blocks = suite::blocked(&needs, &statement.observed);
    }
    let observed: Vec<_> = report.statements.iter().map(|statement| statement.observed.clone()).collect();
    let broken = suite::broken(&mut before, &mut after, &recording.statements, &observed)?;
    let last = report.statements.iter().rposition(|statement| !statement.is_bookkeeping);
    for (place, broken) in broken {
        // Every failure is due to the migration, even if no single statement explains it. Such a failure goes to the
        // last statement.
        if let Some(statement) = place.or(last).and_then(|place| report.statements.get_mut(place)) {
            statement.breaks.push(broken);
        }
    }
    report.unseen.extend(suite::unseen(&needs));
    Ok(())
}

fn add_advice(observations: &Observations, knows_suite: bool, report: &mut MigrationReport) {
    let ours: Vec<_> =
        report.statements.iter().filter(|statement| !statement.is_bookkeeping).cloned().collect();
    let advice = advise(&ours, &observations.sizes, knows_suite);
    let ours = report.statements.iter_mut().filter(|statement| !statement.is_bookkeeping);
    for (statement, advice) in ours.zip(advice) {
        statement.advice = advice;
    }
}

/// Applies the exceptions and budgets of the settings.
fn judge(settings: &MigrateSettings, has_sizes: bool, report: &mut MigrationReport) {
    for unused in apply_exceptions(&mut report.statements, &settings.exceptions) {
        let exception = &settings.exceptions[unused];
        report.unseen.push(format!("a statement for the exception {exception}: remove it"));
    }
    report.over_budget = settings.budget.exceeded(&report.statements);
    report.unseen.extend(settings.budget.unjudged(&report.statements, has_sizes));
}
