//! `pgfresh migrate roundtrip`: migrates up, down and up again.

use std::process::ExitCode;

use serde_json::json;

use super::CHECK_FAILED;
use super::base::Base;
use super::command_runner::CommandRunner;
use super::difference::Difference;
use super::direct_server::{DirectServer, Success};
use super::migration_command::MigrationCommand;
use crate::cli::Roundtrip;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::print_line;

/// Names of the database's copies: before the migrations, and after the first migration up.
const BEFORE: &str = "pgfresh_before";
const UP: &str = "pgfresh_up";

pub(crate) fn execute(context: &Context, arguments: &Roundtrip) -> Result<ExitCode, Failure> {
    let runner = CommandRunner::new()?;
    let base = Base::of(context, arguments.from.as_deref())?;
    base.build_template()?;
    let folder = &context.settings()?.folder;
    let [up, down] =
        [&arguments.up, &arguments.down].map(|command| MigrationCommand::of_shell(command, folder.clone()));
    let server = DirectServer::start(context, &base.provisioner)?;
    server.copy_to(BEFORE)?;
    let mut differences = Vec::new();
    for (name, command, copy, compared) in [
        ("--up", &up, Some(UP), None),
        ("--down", &down, None, Some(BEFORE)),
        ("--up, the second time,", &up, None, Some(UP)),
    ] {
        let ended = server.run(&runner, name, command, &arguments.env);
        if ended.is_err() {
            // The first difference may have caused the failure, so report it.
            publish(arguments.json, &base, &differences, false);
        }
        if let Success::Stopped(code) = ended? {
            return Ok(code);
        }
        if let Some(copy) = copy {
            server.copy_to(copy)?;
        }
        if let Some(compared) = compared {
            differences
                .push(Difference::between(server.session(compared)?, server.session(&server.database)?)?);
        }
    }
    server.stop()?;
    let passes = differences.iter().all(|difference| difference.diff.is_empty());
    publish(arguments.json, &base, &differences, passes);
    base.checkout.remove();
    Ok(if passes { ExitCode::SUCCESS } else { ExitCode::from(CHECK_FAILED) })
}

fn publish(is_json: bool, base: &Base, differences: &[Difference], passes: bool) {
    let Some((after_down, rest)) = differences.split_first() else { return };
    let after_up = rest.first();
    if is_json {
        return print_line!(
            "{}",
            json!({
                "format": 1, "passes": passes, "base": base.revision.name,
                "left_by_down": after_down.diff, "changed_by_second_up": after_up.map(|difference| &difference.diff),
            })
        );
    }
    after_down.show("\"down\" leaves behind", "\"down\" leaves nothing behind");
    if let Some(after_up) = after_up {
        after_up.show(
            "the second \"up\" has another result than the first",
            "the second \"up\" has the same result as the first",
        );
    }
}
