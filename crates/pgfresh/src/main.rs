//! The command line of pgfresh, which provides a fresh `PostgreSQL` database for every test.
//!
//! `cli` (flags) → `settings` (flags, environment and file, resolved once) → one file per command → exit code.

// These macros panic if they can't write. The `output` and `notice` modules provide alternatives.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod background;
mod bounded_file;
mod browser;
mod cancellation;
mod cli;
mod commands;
mod comparison;
mod context;
mod control;
mod disk;
mod end_of_test;
mod exit;
mod experimental;
mod failed_tests;
mod failure;
mod foreground;
mod kept_databases;
mod lagging_tests;
mod lifecycle;
mod linger_advice;
mod log_file;
mod logging;
mod named;
mod new_file;
mod notice;
mod output;
mod output_copy;
mod over_budget;
mod production_plans;
mod production_statistics;
mod profiling;
mod progress;
mod project;
mod report_file;
mod service;
mod settings;
mod stops;
mod suite_statements;
mod target;
mod terminal_progress;
#[cfg(debug_assertions)]
mod test_transcripts;
mod unfired_faults;
mod user_command;
mod variable;

use std::process::ExitCode;

use crate::cli::Cli;
use crate::context::Context;
use crate::exit::ExitRequests;
use crate::failure::Failure;
use crate::logging::LogFilter;

fn main() -> ExitCode {
    sys::set_process_name(c"pgfresh");
    if server::guard_main() {
        return ExitCode::SUCCESS;
    }
    // Restrict the permissions of new files before the process creates, opens or starts anything.
    sys::make_private();
    sys::raise_open_file_limit();
    settings::take_signing_key();
    let cli = match cli::parse() {
        Ok(cli) => cli,
        Err(failure) => return end(&failure, 1),
    };
    let on_failure = cli.command.exit_code_on_failure();
    let code = exit::run(move |exit| execute(cli, exit).unwrap_or_else(|failure| end(&failure, on_failure)));
    code.unwrap_or_else(|failure| end(&failure, on_failure))
}

/// Runs the command. In a background server's process, runs the server instead.
fn execute(cli: Cli, exit: ExitRequests) -> Result<ExitCode, Failure> {
    let context = Context::new(cli.options(), cli.output.verbosity(), exit);
    let filter = LogFilter::new(context.verbosity)?;
    let Some(directory) = cli.background else {
        filter.write_to_terminal();
        return commands::execute(&context, &cli.command);
    };
    let served = background::serve(&context, filter, directory, cli.kept.as_deref());
    // The process that started this one prints the failure for the user.
    Ok(served.unwrap_or_else(|failure| {
        output::report_to_program(&failure);
        ExitCode::FAILURE
    }))
}

/// Prints the failure and returns the exit code. If the calling program expects JSON, also prints the failure as a
/// line of JSON.
fn end(failure: &Failure, usual: u8) -> ExitCode {
    let code = failure.report(usual);
    // Print the JSON last, because the calling program may kill this process as soon as it receives the line.
    if cli::serves_in_json() {
        output::report_to_program(failure);
    }
    code
}
