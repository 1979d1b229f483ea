//! Finds migrations that the older template has run but whose files have been removed from the working
//! tree or renamed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use migrations::is_migration_file;
use template::{TemplateSpec, matching_files};

use super::revision::Revision;
use crate::notice::notice;
use crate::progress::some_of;

/// A migration whose file doesn't exist under the same name in the working tree.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MissingMigration {
    /// Path of the file in the older revision, relative to the template's folder.
    path: String,
    /// Path of the working tree's file with the same contents. `None` if no file has them.
    pub(super) renamed_to: Option<String>,
}

/// Finds the missing migrations of an older template and of the templates it extends.
pub(super) fn find(older: &TemplateSpec) -> Vec<MissingMigration> {
    older.chain().into_iter().flat_map(missing_of).collect()
}

fn missing_of(spec: &TemplateSpec) -> Vec<MissingMigration> {
    let Some(project) = &spec.checkout_of else { return Vec::new() };
    let added: BTreeSet<_> = migrations_in(project, spec);
    let is_added = |path: &&String| !spec.folder.join(path).exists();
    let added: Vec<_> = added.iter().filter(is_added).collect();
    let of_missing = |path: String| {
        let text = fs::read(spec.folder.join(&path)).ok()?;
        let is_same = |other: &&&String| fs::read(project.join(other)).is_ok_and(|other| other == text);
        let renamed_to = added.iter().find(is_same).map(|other| (**other).clone());
        Some(MissingMigration { path, renamed_to })
    };
    let older = migrations_in(&spec.folder, spec).into_iter();
    older.filter(|path| !project.join(path).exists()).filter_map(of_missing).collect()
}

/// Returns the files in `folder` that contain the template's migrations. Not all of the template's inputs
/// are migrations.
fn migrations_in(folder: &Path, spec: &TemplateSpec) -> BTreeSet<String> {
    let files = |patterns: &[String]| -> Vec<String> {
        patterns.iter().flat_map(|pattern| matching_files(folder, pattern)).collect()
    };
    let inputs = files(&spec.inputs).into_iter().filter(|path| is_migration_file(path));
    files(&spec.sql).into_iter().chain(inputs).collect()
}

/// Reports the missing migrations, because no command undoes them in a migrated database.
pub(super) fn report(missing: &[MissingMigration], revision: &Revision) {
    let (renamed, removed): (Vec<_>, Vec<_>) = missing.iter().partition(|one| one.renamed_to.is_some());
    let removed: Vec<_> = removed.into_iter().map(|one| one.path.clone()).collect();
    if !removed.is_empty() {
        notice!("pgfresh: removed since {}, but still in its template: {}", revision.name, some_of(&removed));
    }
    let new_name = |one: &MissingMigration| Some(format!("{}, now {}", one.path, one.renamed_to.as_ref()?));
    let renamed: Vec<_> = renamed.into_iter().filter_map(new_name).collect();
    if !renamed.is_empty() {
        notice!("pgfresh: renamed since {}: {}", revision.name, some_of(&renamed));
    }
}
