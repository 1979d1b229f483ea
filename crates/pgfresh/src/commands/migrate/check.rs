//! `pgfresh migrate check`: shows which tables new migrations lock, scan and rewrite, and which statements they break.

use std::process::ExitCode;

use migrations::{MigrationReport, MigrationRun};

use super::CHECK_FAILED;
use super::analysis::{self, Inputs};
use super::base::Base;
use super::command_runner::CommandRunner;
use super::migration_command::MigrationCommand;
use super::missing_migrations;
use super::observed_run::ObservedRun;
use super::old_code::OldCode;
use super::publish;
use crate::cli::{CheckMigrations, USAGE};
use crate::context::Context;
use crate::failure::Failure;
use crate::report_file;
use crate::terminal_progress::INTERRUPTED;

pub(crate) fn execute(context: &Context, arguments: &CheckMigrations) -> Result<ExitCode, Failure> {
    report_file::expect_writable(&arguments.report)?;
    expect_suite(arguments)?;
    let runner = CommandRunner::new()?;
    let inputs = Inputs::read(context, arguments)?;
    let base = Base::of(context, arguments.from.as_deref())?;
    let command = migration_command(context, arguments, &base)?;
    let run = MigrationRun {
        base: base.revision.name.clone(),
        postgres: base.provisioner.installation.version().to_string(),
        ..MigrationRun::default()
    };
    let Some(command) = command else {
        publish::publish(&MigrationReport { run, ..MigrationReport::default() }, arguments)?;
        return Ok(ExitCode::SUCCESS);
    };
    let base = base.with_data(context)?;
    inputs.expect_tables(&base)?;
    let observed = ObservedRun::perform(context, &base, &runner, &command, &arguments.env)?;
    let ended = observed.ended;
    // The command's own exit code is more important than the report's.
    let of_report = |failure: Failure| failure.after_command(ended.code);
    let settings = &context.settings()?.migrate;
    let mut report = analysis::analyze(&base, settings, &inputs, &observed.transcripts).map_err(of_report)?;
    let mut interrupted = ended.interrupted;
    let mut suite_failure = None;
    if arguments.suite && ended.code == 0 && !interrupted {
        let old_code = OldCode {
            context,
            base: &base,
            runner: &runner,
            command: &arguments.command,
            env: &arguments.env,
        };
        match old_code.try_on(&command) {
            Ok(outcome) => (interrupted, report.suite) = (outcome.is_none(), outcome),
            Err(failure) => suite_failure = Some(failure),
        }
    }
    report.run = MigrationRun {
        command: command.shown,
        exit_code: ended.code,
        is_interrupted: interrupted,
        production: report.run.production.take(),
        waits: observed.waits,
        ..run
    };
    publish::publish(&report, arguments).map_err(of_report)?;
    base.checkout.remove();
    if let Some(failure) = suite_failure {
        return Err(failure);
    }
    Ok(ExitCode::from(match ended.code {
        0 if interrupted => INTERRUPTED,
        0 if !report.passes() => CHECK_FAILED,
        code => code,
    }))
}

fn migration_command(
    context: &Context,
    arguments: &CheckMigrations,
    base: &Base,
) -> Result<Option<MigrationCommand>, Failure> {
    if !context.verbosity.is_quiet() {
        missing_migrations::report(&missing_migrations::find(&base.spec), &base.revision);
    }
    if arguments.suite || arguments.command.is_empty() {
        MigrationCommand::of_template(context, base)
    } else {
        MigrationCommand::of_words(&arguments.command).map(Some)
    }
}

fn expect_suite(arguments: &CheckMigrations) -> Result<(), Failure> {
    if !arguments.suite || !arguments.command.is_empty() {
        return Ok(());
    }
    let failure = Failure::new("the command of the suite is missing");
    let hint = "Write it after \"--\", as in \"pgfresh migrate check --suite -- pytest\".";
    Err(failure.hint(hint.to_owned()).exit_with(USAGE))
}
