//! `pgfresh run`: a server for one command.

use std::process::{Command, ExitCode};

use super::profile::Watch;
use crate::cli::{Options, Run};
use crate::environment;
use crate::failure::Failure;
use crate::foreground;
use crate::service::Wish;

pub(crate) fn execute(options: &Options, arguments: &Run) -> Result<ExitCode, Failure> {
    let maker = super::maker(options, arguments.keep)?;
    let wish = Wish::new(options)?.with(&arguments.care);
    let service = super::serve(options, &maker, wish)?;
    let address = service.address(&service.database);
    let (program, rest) = arguments.command.split_first().expect("clap demands one");
    let mut command = Command::new(program);
    command.args(rest);
    address.describe_to(&mut command);
    service.describe_to(&mut command);
    for assignment in &arguments.env {
        let (name, value) = environment::fill_in(&address, assignment)?;
        command.env(name, value);
    }
    let watch = arguments.profile.then(|| Watch::begin(&service)).transpose()?;
    let code = foreground::run(Some(&service.server), command)?;
    let profile = watch.map(|watch| watch.end(&service, &arguments.command));
    if code != 0 && arguments.keep {
        let kept = service.close().keep()?;
        eprintln!(
            "pgfresh: kept log and data in \"{}\"; \"pgfresh sweep --kept\" removes them",
            kept.display()
        );
    } else {
        super::stop_or_keep(options, service)?;
    }
    if let Some(profile) = profile {
        super::profile::tell(options.quiet, &profile, &arguments.report)?;
    }
    Ok(ExitCode::from(code))
}
