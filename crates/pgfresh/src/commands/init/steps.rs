//! Assembles a template's steps: first the image's steps, then its init scripts, and finally the migrations.

use super::discovery::Discovery;
use crate::project::compose::{DatabaseService, InitScript, ScriptKind};
use crate::project::migrations::{Steps, escaped, word};

/// psql command that stops at the first error.
const PSQL: &str = "psql -Xq -v ON_ERROR_STOP=1";

/// Keys of a template.
#[derive(Debug, Default)]
pub(super) struct TemplateKeys {
    pub(super) sql: Vec<String>,
    /// The setup's shell script, in lines.
    pub(super) setup: Vec<String>,
    pub(super) inputs: Vec<String>,
}

impl TemplateKeys {
    /// Returns the keys for a template called `name`.
    pub(super) fn of(discovery: &Discovery, name: &str) -> Self {
        let scripts = discovery.service.as_ref().map(|service| &service.scripts[..]).unwrap_or_default();
        let before = preparation(discovery, name);
        let mut keys = Self::default();
        if before.is_empty() && scripts.iter().all(|script| script.kind == ScriptKind::Sql) {
            keys.sql = patterns_of(discovery, scripts);
        } else {
            // pgfresh runs a template's "sql" files before its setup, so combine these steps into a single script.
            if !before.is_empty() {
                keys.inputs.extend(discovery.service.iter().map(|service| escaped(&service.file)));
            }
            keys.setup.push("set -e".to_owned());
            keys.setup.extend(before);
            keys.setup.extend(scripts.iter().map(run_script));
            keys.inputs.extend(scripts.iter().map(|script| escaped(&script.path)));
        }
        match discovery.migrations.first().map(|migrations| &migrations.steps) {
            Some(Steps::Command { setup, inputs }) => {
                keys.setup.push(setup.clone());
                keys.inputs.extend(inputs.iter().cloned());
            }
            Some(Steps::Sql(patterns)) => {
                for pattern in patterns.iter().filter(|pattern| !is_mounted(discovery, scripts, pattern)) {
                    if keys.setup.is_empty() {
                        keys.sql.push(pattern.clone());
                    } else {
                        keys.setup.push(run_files(discovery, pattern));
                        keys.inputs.push(pattern.clone());
                    }
                }
            }
            None => {}
        }
        keys
    }
}

/// Returns the commands that prepare the database as initdb and the image do.
fn preparation(discovery: &Discovery, name: &str) -> Vec<String> {
    let mut commands = Vec::new();
    if let Some(service) = &discovery.service {
        let options = &service.initdb.database_options;
        if !options.is_empty() {
            let name = server::identifier(name);
            let drop = word(&format!("DROP DATABASE {name}"));
            let create = word(&format!("CREATE DATABASE {name} TEMPLATE template0 {options}"));
            commands.push(format!("{PSQL} -d postgres -c {drop} -c {create}"));
        }
    }
    if let Some((role, _)) = &discovery.role {
        let create = word(&format!("CREATE ROLE {} SUPERUSER LOGIN", server::identifier(role)));
        commands.push(format!("{PSQL} -c {create}"));
    }
    for extension in discovery.service.iter().flat_map(created_extensions) {
        commands.push(format!("{PSQL} -c 'CREATE EXTENSION IF NOT EXISTS {extension}'"));
    }
    commands
}

/// Returns the extensions that the image creates in a new database.
fn created_extensions(service: &DatabaseService) -> impl Iterator<Item = &'static str> {
    service.image.extensions.iter().filter(|extension| extension.is_created).map(|extension| extension.name)
}

fn files(discovery: &Discovery, pattern: &str) -> Vec<String> {
    template::matching_files(discovery.folder.path(), pattern)
}

/// Returns patterns for the SQL scripts. If a folder contains no other SQL files, returns a single pattern for the
/// folder, so that scripts added later run, too.
fn patterns_of(discovery: &Discovery, scripts: &[InitScript]) -> Vec<String> {
    let paths: Vec<_> = scripts.iter().map(|script| script.path.clone()).collect();
    let folder = paths.first().and_then(|path| path.rsplit_once('/'));
    let pattern = folder.map(|(folder, _)| format!("{}/*.sql", escaped(folder)));
    match pattern.filter(|pattern| paths.len() > 1 && files(discovery, pattern) == paths) {
        Some(pattern) => vec![pattern],
        None => paths.iter().map(|path| escaped(path)).collect(),
    }
}

/// Returns true if the service mounts all files that match `pattern` as init scripts, so they already run.
fn is_mounted(discovery: &Discovery, scripts: &[InitScript], pattern: &str) -> bool {
    files(discovery, pattern).iter().all(|file| scripts.iter().any(|script| script.path == *file))
}

/// Returns a command that runs an init script as the image does.
fn run_script(script: &InitScript) -> String {
    let path = word(&script.path);
    match script.kind {
        ScriptKind::Sql => format!("{PSQL} -f {path}"),
        ScriptKind::Packed(unpack) => format!("{unpack} -c {path} | {PSQL}"),
        ScriptKind::Shell => {
            format!("POSTGRES_USER=\"$PGUSER\" POSTGRES_DB=\"$PGDATABASE\" bash {}", with_folder(&path))
        }
    }
}

/// Returns a command that runs the SQL files matching a pattern.
fn run_files(discovery: &Discovery, pattern: &str) -> String {
    let is_word = |character: char| character.is_ascii_alphanumeric() || "/*._-".contains(character);
    if pattern.contains('*') && pattern.chars().all(is_word) {
        return format!("for file in $(LC_ALL=C ls {pattern}); do {PSQL} -f \"$file\"; done");
    }
    let options = files(discovery, pattern).into_iter().map(|file| format!(" -f {}", word(&file)));
    format!("{PSQL}{}", options.collect::<String>())
}

/// Returns a path with a slash, so that bash doesn't search for the file in `PATH`.
fn with_folder(path: &str) -> String {
    if path.contains('/') { path.to_owned() } else { format!("./{path}") }
}
