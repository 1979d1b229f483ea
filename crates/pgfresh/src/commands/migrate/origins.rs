//! Determines which migration and which file each statement comes from.

use std::collections::BTreeMap;
use std::path::Path;

use migrations::{MigrationFiles, MigrationReport, Observations, StatementOrigin, attribute};

use super::base::Base;
use super::git::git;
use crate::bounded_file;
use crate::failure::Failure;

/// Maximum size of a migration file in bytes.
const MOST_BYTES: u64 = 16_000_000;

/// Sets each statement's migration in the report, and the migrations' files.
pub(super) fn name(
    base: &Base,
    observations: &Observations,
    report: &mut MigrationReport,
) -> Result<(), Failure> {
    let mut paths = list(base, &["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
    paths.sort_by_key(|path| (path.matches('/').count(), path.clone()));
    paths.dedup();
    let added = ["diff", "--name-only", "-z", "--diff-filter=A", &base.revision.commit, "--"];
    let mut added = list(base, &added)?;
    added.extend(list(base, &["ls-files", "-z", "--others", "--exclude-standard"])?);
    added.sort();
    let root = &base.repository.root;
    // The names of tables and columns are usually ASCII, so a file in another encoding is still useful. psql skips a
    // byte order mark.
    let read = |path: &str| {
        let bytes = bounded_file::read(&root.join(path), MOST_BYTES).unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim_start_matches('\u{feff}').to_owned()
    };
    let project = base.spec.folder.strip_prefix(&base.checkout.root).ok().and_then(Path::to_str);
    let files =
        MigrationFiles::new(&paths, &read).with_added(&added).with_project(project.unwrap_or_default());
    let origins = attribute(observations, &files);
    let mut known = BTreeMap::new();
    for (statement, origin) in report.statements.iter_mut().zip(origins) {
        let StatementOrigin { migration, file, line, is_bookkeeping } = origin;
        if let (Some(migration), Some(file)) = (&migration, file) {
            known.insert(migration.clone(), file);
        }
        (statement.migration, statement.line) = (migration, line);
        statement.is_bookkeeping = is_bookkeeping;
    }
    report.files = known;
    report.settings_file = Path::new(project.unwrap_or_default()).join("pgfresh.toml").display().to_string();
    Ok(())
}

/// Returns the paths that git lists when run with `words`.
fn list(base: &Base, words: &[&str]) -> Result<Vec<String>, Failure> {
    let listed = base.repository.expect("list the files of the repository", &mut git(words))?;
    let paths = listed.split(|byte| *byte == 0).filter_map(|path| std::str::from_utf8(path).ok());
    Ok(paths.filter(|path| !path.is_empty()).map(str::to_owned).collect())
}
