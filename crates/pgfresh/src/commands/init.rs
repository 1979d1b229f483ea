//! `pgfresh init`: writes a `pgfresh.toml` for this project and prints the next commands.

mod config;
mod discovery;
mod steps;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::cli::Init;
use crate::context::Context;
use crate::failure::Failure;
use crate::new_file::{self, Readers};
use crate::notice::{notice, print_notice};
use crate::output;
use crate::settings;
use discovery::Discovery;

/// Name of the configuration file.
const FILE: &str = "pgfresh.toml";

pub(crate) fn execute(context: &Context, arguments: &Init) -> Result<ExitCode, Failure> {
    let folder = settings::working_directory()?;
    let path = folder.join(FILE);
    if !arguments.dry_run {
        refuse_existing(&folder)?;
    }
    let discovery = Discovery::of(&folder);
    if let Some(project) = discovery.only_below() {
        return Err(Failure::new("this folder has no project, but folders below it do")
            .detail(format!("The projects are: {}.", discovery.below.join(", ")))
            .hint(format!("Run \"pgfresh init\" there: cd {project}.")));
    }
    let text = config::text(&discovery);
    // A file that pgfresh can't read would be worse than no file.
    settings::check(&text, &path)?;
    for problem in &discovery.problems {
        notice!("{}", Failure::new(problem).on_one_line());
    }
    let next = config::next_commands(&discovery);
    if arguments.dry_run {
        output::print(text);
        if !context.verbosity.is_quiet() {
            print_notice(next);
        }
        return Ok(ExitCode::SUCCESS);
    }
    write(&path, &text)?;
    if !context.verbosity.is_quiet() {
        output::print(format!("Wrote {FILE}: {}.\n{next}", config::summary(&discovery)));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns an error if this folder or a folder above it already has the file.
fn refuse_existing(folder: &Path) -> Result<(), Failure> {
    let path_in = |folder: &Path| folder.join(FILE);
    let found: Option<PathBuf> = folder.ancestors().map(path_in).find(|path| path.symlink_metadata().is_ok());
    match found {
        Some(path) if path == path_in(folder) => Err(exists()),
        Some(path) => Err(Failure::new(format!("\"{}\" already applies to this folder", path.display()))
            .hint(format!("To create a separate file for this folder: pgfresh init --dry-run > {FILE}"))),
        None => Ok(()),
    }
}

fn exists() -> Failure {
    Failure::new(format!("{FILE} already exists, and init overwrites no files"))
        .hint("\"pgfresh init --dry-run\" prints what it would write.".to_owned())
}

/// Writes a new file, with the usual permissions of the user's files. Writes nothing if it fails.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    new_file::create(path, text, Readers::Usual).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => exists(),
        _ => Failure::new(format!("could not write \"{}\": {error}", path.display()))
            .hint("\"pgfresh init --dry-run\" prints the file.".to_owned()),
    })
}

#[cfg(test)]
mod tests;
