//! `pgfresh psql`: psql in a database of a server that is there for nothing else.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use server::{Address, Server, StartError};
use template::Maker;

use crate::cli::{Options, Psql};
use crate::failure::Failure;
use crate::foreground;

pub(crate) fn execute(options: &Options, arguments: &Psql) -> Result<ExitCode, Failure> {
    let maker = super::maker(options, false)?;
    let program = find_psql(&maker)?;
    let started = super::start(options, &maker)?;
    let server = started.server;
    let name = arguments.name.as_deref().unwrap_or(&started.database);
    create(&server, name, &started.database)?;
    let mut command = Command::new(program);
    command.args(&arguments.arguments);
    Address::of(&server, name).describe_to(&mut command);
    let code = foreground::run(&server, command)?;
    super::stop(options, server)?;
    Ok(ExitCode::from(code))
}

/// Makes the database, a copy of the one that was prepared, unless it is there.
fn create(server: &Server, name: &str, prepared: &str) -> Result<(), Failure> {
    if name == prepared || matches!(name, "postgres" | "template1") {
        return Ok(());
    }
    let template = if prepared == "postgres" { "template1" } else { prepared };
    let sql = format!("CREATE DATABASE \"{}\" TEMPLATE \"{template}\"", name.replace('"', "\"\""));
    server.session("postgres")?.query(&sql).map_err(StartError::from)?;
    Ok(())
}

/// The installation's own psql, or the one on PATH.
fn find_psql(maker: &Maker) -> Result<PathBuf, Failure> {
    maker.installation.client("psql").ok_or_else(|| {
        let failure = Failure::new("could not find psql");
        failure
            .detail(format!("Neither \"{}\" nor PATH has it.", maker.installation.bin().display()))
            .hint("Install PostgreSQL's client programs (Debian: apt install postgresql-client).".to_owned())
    })
}
