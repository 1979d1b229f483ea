//! Finds the scripts that an image runs when the image creates its database.

use std::path::Path;

use super::service::Service;
use super::{is_script_target, relative};

/// Maximum number of scripts that pgfresh takes over.
const MAX_SCRIPTS: usize = 200;

/// A script that runs before the migrations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InitScript {
    /// Path relative to the project.
    pub(crate) path: String,
    pub(crate) kind: ScriptKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScriptKind {
    Sql,
    Shell,
    /// SQL that must be unpacked with this program.
    Packed(&'static str),
}

/// Returns the scripts in the order the image runs them in. Adds a note for each missing script.
pub(super) fn collect(service: &Service, project: &Path, notes: &mut Vec<String>) -> Vec<InitScript> {
    let mut found: Vec<(String, InitScript)> = Vec::new();
    for (source, target) in service.mounts.iter().filter(|(_, target)| is_script_target(target)) {
        let shown = relative(project, source);
        if source.is_dir() {
            let entries = std::fs::read_dir(source).into_iter().flatten().flatten();
            for entry in entries.filter(|entry| entry.path().is_file()) {
                let Ok(name) = entry.file_name().into_string() else { continue };
                let path = if shown.is_empty() { name.clone() } else { format!("{shown}/{name}") };
                found.extend(script(&name, path).map(|script| (name, script)));
            }
        } else if source.is_file() {
            let name = target.rsplit('/').next().unwrap_or_default();
            found.extend(script(name, shown).map(|script| (name.to_owned(), script)));
        } else {
            notes.push(format!("{shown}: there is no such script"));
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    // A later mount hides an earlier mount with the same name, so keep the last mount of each name.
    found.reverse();
    found.dedup_by(|a, b| a.0 == b.0);
    found.reverse();
    if found.len() > MAX_SCRIPTS {
        notes.push(format!("{} of {} init scripts", found.len() - MAX_SCRIPTS, found.len()));
    }
    found.into_iter().take(MAX_SCRIPTS).map(|(_, script)| script).collect()
}

/// Returns the script for a file whose name in the container is `name`. Returns `None` for files that the
/// image ignores.
fn script(name: &str, path: String) -> Option<InitScript> {
    let kind = match name.rsplit('.').next()? {
        "sql" => ScriptKind::Sql,
        "sh" => ScriptKind::Shell,
        "gz" if name.ends_with(".sql.gz") => ScriptKind::Packed("gunzip"),
        "xz" if name.ends_with(".sql.xz") => ScriptKind::Packed("xz -d"),
        "zst" if name.ends_with(".sql.zst") => ScriptKind::Packed("zstd -d"),
        _ => return None,
    };
    Some(InitScript { path, kind })
}
