//! `pgfresh run`: runs a command with its own server.

use std::process::ExitCode;

use template::ServerOptions;

use crate::background;
use crate::cli::Run;
use crate::comparison;
use crate::context::Context;
use crate::context::provisioning;
use crate::failure::Failure;
use crate::foreground;
use crate::lifecycle;
use crate::linger_advice;
use crate::notice::notice;
use crate::over_budget;
use crate::profiling::Watch;
use crate::report_file;
use crate::service::{ServeOptions, leases_failed};
use crate::user_command::{self, NO_SESSION};

pub(crate) fn execute(context: &Context, arguments: &Run) -> Result<ExitCode, Failure> {
    if arguments.compare {
        return comparison::durable_and_ours(context, arguments);
    }
    report_file::expect_writable(&arguments.report)?;
    let settings = context.settings()?;
    let (keep, full) = (arguments.keep, arguments.full);
    let options = ServerOptions { keep, full, ..settings.with_template()? };
    let serve_options = ServeOptions::new(settings)?.with(&arguments.service)?;
    let serve_options = serve_options.at_port(arguments.port).for_command(&arguments.command);
    let provisioner = serve_options.encrypt_setups(provisioning::provisioner(context, options)?);
    let service = lifecycle::serve(context, &provisioner, serve_options)?;
    let command =
        user_command::command(&arguments.command, &arguments.env, &service, &provisioner.installation);
    let watch = arguments.profile.then(|| Watch::begin(&service)).transpose()?;
    let code = foreground::run(Some(&service.server), command)?;
    let (has_session, has_failed) = (service.leases.has_had_clients(), service.leases.have_failed());
    let linger_use = Some(service.leases.linger_use()).filter(|_| service.leases.can_reset());
    let seen = watch.map(|watch| watch.end(&service, &arguments.command));
    let (over, more) = service.recorder.finish();
    if code != 0 && arguments.keep {
        let kept = service.close().keep()?;
        notice!(
            "pgfresh: kept log and data in \"{}\"; \"{}\" removes them",
            kept.display(),
            provisioner.command_to_sweep()
        );
    } else {
        // If tests failed, hand their databases over to a background server.
        background::stop_or_keep(context, service)?;
    }
    if has_failed {
        return Err(leases_failed().exit_with(code.max(1)));
    }
    if !has_session && !context.verbosity.is_quiet() {
        notice!("pgfresh: {NO_SESSION}");
    }
    if !context.verbosity.is_quiet()
        && let Some(linger_use) = linger_use
        && let Some(advice) = linger_advice::advice(linger_use, settings, &provisioner.cache)
    {
        notice!("pgfresh: {advice}");
    }
    let without_profile = |failure: Failure| if code == 0 { failure } else { failure.exit_with(code) };
    if let Some(seen) = seen.transpose().map_err(without_profile)? {
        report_file::publish(
            context.verbosity.is_quiet(),
            &|columns| seen.summary(columns),
            &seen.report(),
            &|| seen.to_html(),
            &arguments.report,
        )?;
    }
    if over.is_empty() {
        return Ok(ExitCode::from(code));
    }
    over_budget::print(&over, more);
    Ok(ExitCode::from(if code == 0 { over_budget::EXIT } else { code }))
}
