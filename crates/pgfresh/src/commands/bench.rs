//! `pgfresh bench`: measures on this machine.

use std::process::ExitCode;

use crate::cli::{Bench, Options};
use crate::failure::Failure;

pub(crate) fn execute(_options: &Options, _command: &Bench) -> Result<ExitCode, Failure> {
    Err(Failure::new("not yet"))
}
