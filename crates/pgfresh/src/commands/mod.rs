//! Contains one file per command. Commands don't depend on each other; the modules beside this one contain the code
//! they share.

mod bench;
mod ci;
mod completions;
mod diff;
mod doctor;
mod explain;
mod faults;
mod init;
mod man;
mod migrate;
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

use crate::cli::Command;
use crate::context::Context;
use crate::failure::Failure;

pub(crate) fn execute(context: &Context, command: &Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Run(arguments) => run::execute(context, arguments),
        Command::Serve(arguments) => serve::execute(context, arguments),
        Command::Psql(arguments) => psql::execute(context, arguments),
        Command::Url(arguments) => url::execute(context, arguments),
        Command::Reset(arguments) => reset::execute(context, arguments),
        Command::Release(arguments) => release::execute(context, arguments),
        Command::Snapshot(arguments) => snapshot::execute(context, arguments),
        Command::Diff(arguments) => diff::execute(context, arguments),
        Command::Explain(arguments) => explain::execute(context, arguments),
        Command::Migrate(command) => migrate::execute(context, command),
        Command::Faults(arguments) => faults::execute(context, arguments),
        Command::Status(arguments) => status::execute(context, arguments),
        Command::Open(_) => open::execute(context),
        Command::Stop(arguments) => stop::execute(context, arguments),
        Command::Template(command) => template::execute(context, command),
        Command::Postgres(command) => postgres::execute(context, command),
        Command::Init(arguments) => init::execute(context, arguments),
        Command::Ci(arguments) => ci::execute(context, arguments),
        Command::Completions(arguments) => Ok(completions::execute(arguments)),
        Command::Man(arguments) => man::execute(arguments),
        Command::Sweep(arguments) => sweep::execute(context, arguments),
        Command::Doctor(arguments) => doctor::execute(context, arguments),
        Command::Profile(arguments) => profile::execute(context, arguments),
        Command::Bench(command) => bench::execute(context, command),
    }
}
