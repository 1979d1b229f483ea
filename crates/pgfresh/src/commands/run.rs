//! `pgfresh run`: a server for one command.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use super::profile::Watch;
use super::{compare, profile};
use crate::cli::{Options, Run};
use crate::environment;
use crate::failure::Failure;
use crate::foreground;
use crate::service::{ServeOptions, Service};

pub(crate) fn execute(options: &Options, arguments: &Run) -> Result<ExitCode, Failure> {
    if arguments.compare {
        return compare::execute(options, arguments);
    }
    let provisioner = super::provisioner(options, arguments.keep)?;
    let wish = ServeOptions::new(options)?.with(&arguments.lease);
    let service = super::serve(options, &provisioner, wish)?;
    let command = command(&arguments.command, &arguments.env, &service)?;
    let watch = arguments.profile.then(|| Watch::begin(&service)).transpose()?;
    let code = foreground::run(Some(&service.server), command)?;
    let seen = watch.map(|watch| watch.end(&service, &arguments.command));
    if code != 0 && arguments.keep {
        let kept = service.close().keep()?;
        eprintln!(
            "pgfresh: kept log and data in \"{}\"; \"pgfresh sweep --kept\" removes them",
            kept.display()
        );
    } else {
        super::stop_or_keep(options, service)?;
    }
    if let Some(seen) = seen {
        profile::tell(options.quiet, &seen, &seen.report(), &|| seen.to_html(), &arguments.report)?;
    }
    Ok(ExitCode::from(code))
}

/// What the user wants to be run, told where the server is.
pub(super) fn command(words: &[OsString], env: &[String], service: &Service) -> Result<Command, Failure> {
    let address = service.address(&service.database);
    let (program, rest) = words.split_first().expect("clap demands one");
    let mut command = Command::new(program);
    command.args(rest);
    address.describe_to(&mut command);
    service.describe_to(&mut command);
    for assignment in env {
        let (name, value) = environment::fill_in(&address, assignment)?;
        command.env(name, value);
    }
    Ok(command)
}
