//! `pgfresh psql`: psql in a database of a server that is there for nothing else.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use template::Maker;

use crate::cli::{Options, Psql};
use crate::failure::Failure;
use crate::foreground;
use crate::service::Wish;

pub(crate) fn execute(options: &Options, arguments: &Psql) -> Result<ExitCode, Failure> {
    let maker = super::maker(options, false)?;
    let program = find_psql(&maker)?;
    let service = super::serve(options, &maker, Wish::default())?;
    let name = arguments.name.as_deref().unwrap_or(&service.database);
    let mut command = Command::new(program);
    command.args(&arguments.arguments);
    service.address(name).describe_to(&mut command);
    service.describe_to(&mut command);
    let code = foreground::run(&service.server, command)?;
    super::stop(options, service)?;
    Ok(ExitCode::from(code))
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
