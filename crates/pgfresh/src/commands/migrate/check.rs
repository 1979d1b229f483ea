//! `pgfresh migrate check`: shows what new migrations lock, scan, rewrite and break.

use std::process::ExitCode;

use crate::cli::CheckMigrations;
use crate::context::Context;
use crate::failure::Failure;

pub(crate) fn execute(_context: &Context, _arguments: &CheckMigrations) -> Result<ExitCode, Failure> {
    Err(Failure::new("not there yet"))
}
