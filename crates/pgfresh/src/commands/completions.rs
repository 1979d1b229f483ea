//! `pgfresh completions`: prints shell completions.

use std::process::ExitCode;

use clap_complete::generate;

use crate::cli::{self, Completions};
use crate::output;

pub(crate) fn execute(arguments: &Completions) -> ExitCode {
    let mut script = Vec::new();
    generate(arguments.shell, &mut cli::command(), "pgfresh", &mut script);
    output::print(String::from_utf8_lossy(&script));
    ExitCode::SUCCESS
}
