//! `pgfresh run`: runs a command with its own server.

use std::process::ExitCode;

use lease::LingerUse;
use profile::Profile;
use template::{Provisioner, ServerOptions};

use crate::background;
use crate::cli::Run;
use crate::comparison;
use crate::context::Context;
use crate::context::provisioning;
use crate::failure::Failure;
use crate::foreground::{self, Ended};
use crate::lagging_tests;
use crate::lifecycle;
use crate::linger_advice;
use crate::notice::notice;
use crate::over_budget;
use crate::production_plans::{ExplainedRun, PlanOptions};
use crate::profiling::Watch;
use crate::report_file;
use crate::service::{ServeOptions, Service, leases_failed};
use crate::settings::ResolvedSettings;
use crate::suite_statements::StatementWatch;
use crate::unfired_faults;
use crate::user_command::{self, NO_SESSION};

pub(crate) fn execute(context: &Context, arguments: &Run) -> Result<ExitCode, Failure> {
    if arguments.compare {
        return comparison::durable_and_ours(context, arguments);
    }
    report_file::expect_writable(&arguments.report)?;
    arguments.statements.as_deref().map_or(Ok(()), report_file::expect_writable_path)?;
    let settings = context.settings()?;
    let plans = PlanOptions::read(settings, arguments)?;
    let options = ServerOptions { keep: arguments.keep, full: arguments.full, ..settings.with_template()? };
    let serve_options = ServeOptions::new(settings)?.with(&arguments.service)?;
    let serve_options = serve_options.at_port(arguments.port).for_command(&arguments.command);
    let provisioner = serve_options.encrypt_setups(provisioning::provisioner(context, options)?);
    let service = lifecycle::serve(context, &provisioner, serve_options)?;
    let command =
        user_command::command(&arguments.command, &arguments.env, &service, &provisioner.installation);
    let watch = arguments.profile.then(|| Watch::begin(&service)).transpose()?;
    let statements = StatementWatch::begin(&service, arguments);
    let Ended { code, interrupted } = foreground::run(Some(&service.server), command)?;
    let (has_session, has_failed) = (service.leases.has_had_clients(), service.leases.have_failed());
    let linger_use = Some(service.leases.linger_use()).filter(|_| service.leases.can_reset());
    let statements = statements.map(StatementWatch::end).filter(|_| has_session && !interrupted);
    let avoidable_wait =
        linger_use.and_then(|linger_use| linger_advice::avoidable_wait(linger_use, settings));
    // The profile has a finding in place of the advice.
    let linger_use = linger_use.filter(|_| watch.is_none());
    let seen = watch.map(|watch| watch.end(&service, &arguments.command, avoidable_wait));
    let (over, more) = service.recorder.finish();
    let (lagging, unused_budget) = (service.recorder.lagging(), service.recorder.has_unused_budget());
    let unfired = service.gateway.faults().finish();
    end(context, arguments, &provisioner, service, code)?;
    if has_failed {
        return Err(leases_failed().exit_with(code.max(1)));
    }
    if !context.verbosity.is_quiet() {
        advise(has_session, unused_budget, linger_use, settings, &provisioner);
    }
    let of_report = |failure: Failure| failure.after_command(code);
    let seen = seen.transpose().map_err(of_report)?;
    // If one of these outputs fails, the others are still written.
    let kept = statements
        .as_ref()
        .map_or(Ok(()), |statements| statements.keep(arguments, &settings.folder, &provisioner.cache, code));
    let plans = plans.zip(statements);
    let explain = |(plans, statements): (PlanOptions, _)| plans.explain(context, &provisioner, &statements);
    let plans = plans.map(explain).transpose().map_err(of_report)?;
    let published = publish(context, arguments, seen.as_ref(), plans.as_ref());
    let updated = plans.as_ref().map_or(Ok(()), |plans| plans.update_baseline(code));
    let mut exceeds = plans.as_ref().is_some_and(ExplainedRun::print_failures);
    lagging_tests::print(&lagging);
    if !over.is_empty() {
        over_budget::print(&over, more);
        exceeds = true;
    }
    if !unfired.is_empty() {
        unfired_faults::print(&unfired);
        exceeds = true;
    }
    kept.and(published).and(updated).map_err(of_report)?;
    Ok(ExitCode::from(if exceeds && code == 0 { over_budget::EXIT } else { code }))
}

/// Stops the service after its command has ended with exit code `code`. If the user wants that, keeps the data or the
/// databases of failed tests.
fn end(
    context: &Context,
    arguments: &Run,
    provisioner: &Provisioner,
    service: Service,
    code: u8,
) -> Result<(), Failure> {
    if code == 0 || !arguments.keep {
        // If tests failed, hand their databases over to a background server.
        return background::stop_or_keep(context, service);
    }
    let kept = service.close().keep()?;
    notice!(
        "pgfresh: kept log and data in \"{}\"; \"{}\" removes them",
        kept.display(),
        provisioner.command_to_sweep()
    );
    Ok(())
}

/// Prints advice on how to use pgfresh, if there is any.
fn advise(
    has_session: bool,
    unused_budget: bool,
    linger_use: Option<LingerUse>,
    settings: &ResolvedSettings,
    provisioner: &Provisioner,
) {
    if !has_session {
        notice!("pgfresh: {NO_SESSION}");
    } else if unused_budget {
        notice!("pgfresh: {}", over_budget::UNUSED);
    }
    if let Some(linger_use) = linger_use
        && let Some(advice) = linger_advice::advice(linger_use, settings, &provisioner.cache)
    {
        notice!("pgfresh: {advice}");
    }
}

/// Prints the summaries of the profile and the plans, and writes a single report that covers both.
fn publish(
    context: &Context,
    arguments: &Run,
    profile: Option<&Profile>,
    plans: Option<&ExplainedRun>,
) -> Result<(), Failure> {
    let plans = plans.map(|plans| &plans.report);
    let command = user_command::to_line(&arguments.command);
    let mut report = match (profile, plans) {
        (None, None) => return Ok(()),
        (Some(profile), _) => profile.report(),
        (None, Some(plans)) => plans.report(&command),
    };
    if let (Some(_), Some(plans)) = (profile, plans) {
        plans.add_to(&mut report, &command);
    }
    let summary = |columns: usize| {
        let summaries =
            [profile.map(|profile| profile.summary(columns)), plans.map(|plans| plans.summary(columns))];
        summaries.into_iter().flatten().collect::<Vec<_>>().join("\n")
    };
    let page = || report.to_html(&profile.map(Profile::timeline).unwrap_or_default());
    report_file::publish(context.verbosity.is_quiet(), &summary, &report, &page, &arguments.report)
}
