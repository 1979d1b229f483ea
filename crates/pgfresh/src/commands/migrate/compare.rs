//! `pgfresh migrate compare`: compares a full build with the result of running the new migrations on an
//! older template.

use std::process::ExitCode;

use serde_json::json;
use template::ServerOptions;

use super::CHECK_FAILED;
use super::base::Base;
use super::command_runner::CommandRunner;
use super::difference::Difference;
use super::direct_server::{DirectServer, Success};
use super::migration_command::MigrationCommand;
use crate::cli::CompareBuilds;
use crate::context::Context;
use crate::context::provisioning;
use crate::failure::Failure;
use crate::output::print_line;

pub(crate) fn execute(context: &Context, arguments: &CompareBuilds) -> Result<ExitCode, Failure> {
    let runner = CommandRunner::new()?;
    let base = Base::of(context, Some(&arguments.from))?;
    base.build_template()?;
    let command = if arguments.command.is_empty() {
        MigrationCommand::of_template(context, &base)?
    } else {
        Some(MigrationCommand::of_words(&arguments.command)?)
    };
    let migrated = DirectServer::start(context, &base.provisioner)?;
    if let Some(command) = &command
        && let Success::Stopped(code) =
            migrated.run(&runner, "the migration command", command, &arguments.env)?
    {
        return Ok(code);
    }
    let options = ServerOptions { full: true, ..context.settings()?.with_template()? };
    let provisioner = provisioning::provisioner(context, options)?;
    let built = DirectServer::start(context, &provisioner)?;
    let difference =
        Difference::between(built.session(&built.database)?, migrated.session(&migrated.database)?)?;
    built.stop()?;
    migrated.stop()?;
    let passes = !difference.has_definitions();
    let revision = &base.revision.name;
    if arguments.json {
        print_line!(
            "{}",
            json!({ "format": 1, "passes": passes, "base": revision, "difference": difference.diff })
        );
    } else {
        difference.show(
            &format!("{revision} with the new migrations differs from a full build"),
            &format!("{revision} with the new migrations does not differ from a full build"),
        );
    }
    base.checkout.remove();
    Ok(if passes { ExitCode::SUCCESS } else { ExitCode::from(CHECK_FAILED) })
}
