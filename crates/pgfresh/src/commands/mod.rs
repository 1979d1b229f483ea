//! Contains one file for each command. Commands don't depend on each other. Code that they share is in modules beside
//! this one.

mod bench;
mod ci;
mod completions;
mod diff;
mod doctor;
mod man;
mod open;
mod postgres;
mod profile;
mod psql;
mod release;
mod reset;
mod run;
mod serve;
mod snapshot;
mod status;
mod stop;
mod sweep;
mod template;
mod url;

use std::process::ExitCode;

use crate::background;
use crate::cli::{Cli, Command};
use crate::failure::Failure;
use crate::logging::LogFilter;
use crate::output;
use crate::settings::ResolvedSettings;

/// Runs the command. `filter` selects the log records to write.
pub(crate) fn execute(cli: Cli, filter: LogFilter) -> Result<ExitCode, Failure> {
    let options = &cli.options;
    // Resolves the settings lazily, so a mistake in the file doesn't affect commands that don't need it.
    let settings = || ResolvedSettings::resolve(options);
    if let Some(directory) = cli.background {
        let served = settings()
            .and_then(|settings| background::serve(&settings, filter, directory, cli.kept.as_deref()));
        // The process that started this one prints the failure.
        return Ok(served.unwrap_or_else(|failure| {
            output::tell_program(&failure);
            ExitCode::FAILURE
        }));
    }
    filter.write_to_terminal();
    match cli.command {
        Command::Run(arguments) => run::execute(&settings()?, &arguments),
        Command::Serve(arguments) => serve::execute(&settings()?, &arguments),
        Command::Psql(arguments) => psql::execute(&settings()?, &arguments),
        Command::Url { name, of } => url::execute(options, name.as_deref(), of.as_deref()),
        Command::Reset { name, close, test } => reset::execute(options, &name, close, test.as_deref()),
        Command::Release { name, failed, test } => release::execute(options, &name, failed, test.as_deref()),
        Command::Snapshot { name, template, save, .. } => {
            snapshot::execute(options, &name, &template, save.as_deref())
        }
        Command::Diff(arguments) => diff::execute(options, &arguments),
        Command::Status { json } => status::execute(options, json),
        Command::Open => open::execute(options),
        Command::Stop { all } => stop::execute(&settings()?, all),
        Command::Template(command) => template::execute(options, &command),
        Command::Postgres(command) => postgres::execute(options, &command),
        Command::Ci { system } => Ok(ci::execute(&settings()?, system)),
        Command::Completions { shell } => Ok(completions::execute(shell)),
        Command::Man { folder } => man::execute(&folder),
        Command::Sweep(arguments) => sweep::execute(&settings()?, &arguments),
        Command::Doctor(arguments) => doctor::execute(options, &arguments),
        Command::Profile(arguments) => profile::execute(options, &arguments),
        Command::Bench(command) => bench::execute(options, &settings()?, &command),
    }
}
