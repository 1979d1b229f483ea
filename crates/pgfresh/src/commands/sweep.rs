//! `pgfresh sweep`: removes leftovers of crashed runs.

use std::process::ExitCode;

use crate::background;
use crate::cli::Sweep;
use crate::failure::Failure;
use crate::output::say;
use crate::settings::ResolvedSettings;
use crate::startup;

pub(crate) fn execute(settings: &ResolvedSettings, arguments: &Sweep) -> Result<ExitCode, Failure> {
    let place = &settings.server_options.place;
    let cache = startup::cache(settings.cache.as_deref())?;
    let (mut removed, mut failures) = template::sweep(&cache, place);
    removed.extend(background::sweep(&cache)?);
    if arguments.kept {
        let (kept, more) = template::remove_kept(&cache, place);
        removed.extend(kept);
        failures.extend(more);
    }
    if !settings.verbosity.is_quiet() {
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
