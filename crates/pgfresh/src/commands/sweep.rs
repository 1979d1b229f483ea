//! `pgfresh sweep`: removes leftovers of crashed runs.

use std::process::ExitCode;

use storage::{Attempt, PlaceRequest};

use crate::background;
use crate::cli::Sweep;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::print_line;

pub(crate) fn execute(context: &Context, arguments: &Sweep) -> Result<ExitCode, Failure> {
    let place = &context.settings()?.server_options.place;
    // If the user misspelled the path, the sweep must not claim that there was nothing to remove.
    if let PlaceRequest::At(path) = place {
        path.metadata().attempt("sweep", path)?;
    }
    // A sweep must not create a cache, so if the directory is missing, only sweep run directories.
    let missing = context.options().cache.cache.as_deref().filter(|path| !path.exists());
    let (disk, (mut removed, mut failures)) = if let Some(path) = missing {
        (path.to_owned(), template::sweep_runs(path, place))
    } else {
        let cache = context.cache()?;
        let (mut removed, failures) = template::sweep(&cache, place);
        removed.extend(background::sweep(&cache)?);
        (cache.root().to_owned(), (removed, failures))
    };
    if arguments.kept {
        let (kept, more) = template::remove_kept(&disk, place);
        removed.extend(kept);
        failures.extend(more);
    }
    if !context.verbosity.is_quiet() {
        for path in &removed {
            print_line!("removed \"{}\"", path.display());
        }
        match missing {
            _ if !(removed.is_empty() && failures.is_empty()) => {}
            Some(path) => print_line!("nothing to remove, and no cache in \"{}\"", path.display()),
            None => print_line!("nothing to remove"),
        }
    }
    match failures.into_iter().next() {
        Some(error) => Err(error.into()),
        None => Ok(ExitCode::SUCCESS),
    }
}
