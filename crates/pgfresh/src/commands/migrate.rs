//! `pgfresh migrate`: checks migrations on the template as it was before them.

mod analysis;
mod base;
mod check;
mod checkout;
mod command_runner;
mod compare;
mod difference;
mod direct_server;
mod git;
mod migration_command;
mod missing_migrations;
mod observed_run;
mod old_code;
mod origins;
mod publish;
mod revision;
mod roundtrip;

use std::process::ExitCode;

use crate::cli::Migrate;
use crate::context::Context;
use crate::failure::Failure;

/// Exit code if the migrations fail the check.
const CHECK_FAILED: u8 = 1;

pub(crate) fn execute(context: &Context, command: &Migrate) -> Result<ExitCode, Failure> {
    match command {
        Migrate::Check(arguments) => check::execute(context, arguments),
        Migrate::Roundtrip(arguments) => roundtrip::execute(context, arguments),
        Migrate::Compare(arguments) => compare::execute(context, arguments),
    }
}
