//! Fresh `PostgreSQL` for every test: the command line.
//!
//! `cli` (flags) → `settings` (flags, environment and file, resolved once) → one file per command → exit code.

mod background;
mod cli;
mod commands;
mod comparison;
mod control;
mod disk;
mod evidence;
mod failure;
mod foreground;
mod onlooker;
mod output;
mod profiling;
mod progress;
mod report_file;
mod service;
mod settings;
mod startup;
mod stops;
mod user_command;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    if server::guard_main() {
        return ExitCode::SUCCESS;
    }
    // Before anything is made, opened or started.
    sys::make_private();
    sys::raise_files();
    log();
    let cli = cli::Cli::parse();
    let on_failure = cli.command.exit_code_on_failure();
    match commands::execute(cli) {
        Ok(code) => code,
        Err(failure) => {
            eprint!("{failure}");
            ExitCode::from(failure.code().unwrap_or(on_failure))
        }
    }
}

/// Which messages of the background are printed: `error`, `warn`, `info`, `debug` or `trace`.
const LOG: &str = "PGFRESH_LOG";

/// Prints what happens in the background to standard error, if `PGFRESH_LOG` says so.
fn log() {
    let Some(level) = std::env::var(LOG).ok().and_then(|level| level.parse::<tracing::Level>().ok()) else {
        return;
    };
    tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).init();
}
