//! `pgfresh completions`: prints shell completions.

use std::process::ExitCode;

use clap_complete::{Shell, generate};

use crate::cli;
use crate::output;

pub(crate) fn execute(shell: Shell) -> ExitCode {
    let mut script = Vec::new();
    generate(shell, &mut cli::command(), "pgfresh", &mut script);
    output::print(String::from_utf8_lossy(&script));
    ExitCode::SUCCESS
}
