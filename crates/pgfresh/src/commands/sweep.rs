//! `pgfresh sweep`: removes what dead owners left.

use std::process::ExitCode;

use crate::background;
use crate::cli::{Options, Sweep};
use crate::config;
use crate::failure::Failure;
use crate::output::say;
use crate::startup;

pub(crate) fn execute(options: &Options, arguments: &Sweep) -> Result<ExitCode, Failure> {
    let server_options = config::read(options)?.server_options;
    let cache = startup::cache(options)?;
    let (mut removed, mut failures) = template::sweep(&cache, &server_options.place);
    removed.extend(background::sweep(&cache));
    if arguments.kept {
        let (kept, more) = template::remove_kept(&cache, &server_options.place);
        removed.extend(kept);
        failures.extend(more);
    }
    if !options.quiet {
        for path in &removed {
            say!("removed \"{}\"", path.display());
        }
        if removed.is_empty() && failures.is_empty() {
            say!("nothing to remove");
        }
    }
    match failures.into_iter().next() {
        Some(error) => Err(error.into()),
        None => Ok(ExitCode::SUCCESS),
    }
}
