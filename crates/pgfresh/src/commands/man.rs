//! `pgfresh man`: writes the man pages.

use std::process::ExitCode;

use crate::cli::{self, Man};
use crate::failure::Failure;

pub(crate) fn execute(arguments: &Man) -> Result<ExitCode, Failure> {
    let folder = &arguments.folder;
    let written = clap_mangen::generate_to(cli::command(), folder).and_then(|()| {
        let entries = std::fs::read_dir(folder)?.flatten();
        let pages = entries.filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with("pgfresh") && name.ends_with(".1")
        });
        pages
            .map(|page| page.path())
            .try_for_each(|page| sys::apply_original_mask(&std::fs::File::open(page)?))
    });
    written.map_err(|error| {
        Failure::new(format!("could not write to \"{}\": {error}", folder.display()))
            .hint("Name an existing directory.".to_owned())
    })?;
    Ok(ExitCode::SUCCESS)
}
