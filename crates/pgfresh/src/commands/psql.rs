//! `pgfresh psql`: psql in a database of a server that is there for nothing else.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use server::{Address, Server, StartError};
use template::Maker;

use crate::cli::{Options, Psql};
use crate::failure::Failure;
use crate::foreground;

pub(crate) fn execute(options: &Options, arguments: &Psql) -> Result<ExitCode, Failure> {
    let maker = super::maker(options)?;
    let program = find_psql(&maker)?;
    let server = super::start(options, &maker)?.server;
    let name = arguments.name.as_deref().unwrap_or("postgres");
    create(&server, name)?;
    let mut command = Command::new(program);
    command.args(&arguments.arguments);
    Address::of(&server, name).describe_to(&mut command);
    let code = foreground::run(&server, command)?;
    super::stop(options, server)?;
    Ok(ExitCode::from(code))
}

/// Makes the database, unless it is one of those that are always there.
fn create(server: &Server, name: &str) -> Result<(), Failure> {
    if matches!(name, "postgres" | "template1") {
        return Ok(());
    }
    let sql = format!("CREATE DATABASE \"{}\"", name.replace('"', "\"\""));
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
