//! `pgfresh psql`: psql in a database of this run's server, or of the background server.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use serde_json::Value;
use template::Provisioner;
use ureq::http::Method;

use crate::cli::{Options, Psql};
use crate::control::path_of;
use crate::failure::Failure;
use crate::foreground;

pub(crate) fn execute(options: &Options, arguments: &Psql) -> Result<ExitCode, Failure> {
    let mut command = Command::new(find_psql(&super::provisioner(options, false)?)?);
    command.args(&arguments.arguments);
    let control = super::control::join(options)?;
    // A name that somebody gives comes to be with psql's session, and outlives it as any other does.
    let leased = match &arguments.name {
        Some(_) => None,
        None => Some(control.call(&Method::POST, "/v1/databases", &Value::Null)?),
    };
    let leased = leased.as_ref().map(|leased| super::control::text(&leased["name"]));
    let name = arguments.name.as_deref().or(leased).unwrap_or_default();
    control.address(name).describe_to(&mut command);
    control.describe_to(&mut command);
    let code = foreground::run(None, command)?;
    if let Some(leased) = leased {
        control.call(&Method::DELETE, &path_of(leased, ""), &Value::Null)?;
    }
    Ok(ExitCode::from(code))
}

/// The installation's own psql, or the one on PATH.
pub(super) fn find_psql(provisioner: &Provisioner) -> Result<PathBuf, Failure> {
    provisioner.installation.client("psql").ok_or_else(|| {
        let failure = Failure::new("could not find psql");
        failure
            .detail(format!("Neither \"{}\" nor PATH has it.", provisioner.installation.bin().display()))
            .hint("Install PostgreSQL's client programs (Debian: apt install postgresql-client).".to_owned())
    })
}
