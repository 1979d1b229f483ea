//! Assembles a template's steps: first the image's steps, then its init scripts, and finally the migrations. The steps
//! of the image go into `prepare`, because `migrate check` must not run them again.

use super::discovery::{Discovery, ObjectKind, creates};
use crate::project::compose::{DatabaseService, InitScript, ScriptKind};
use crate::project::migrations::{Steps, escaped, included, word};

/// psql command that stops at the first error.
const PSQL: &str = "psql -Xq -v ON_ERROR_STOP=1";

/// Keys of a template.
#[derive(Debug, Default)]
pub(super) struct TemplateKeys {
    /// The prepare command's shell script, in lines.
    pub(super) prepare: Vec<String>,
    pub(super) sql: Vec<String>,
    pub(super) setup: Option<String>,
    pub(super) inputs: Vec<String>,
}

impl TemplateKeys {
    /// Returns the keys for a template called `name`.
    pub(super) fn of(discovery: &Discovery, name: &str) -> Self {
        let service = discovery.service.as_ref();
        let scripts = service.map(|service| &service.scripts[..]).unwrap_or_default();
        let before = preparation(discovery, scripts, name);
        let mut keys = Self::default();
        if before.is_empty() && scripts.iter().all(|script| script.kind == ScriptKind::Sql) {
            keys.sql = patterns_of(discovery, scripts);
        } else {
            keys.prepare.push("set -e".to_owned());
            keys.prepare.extend(before);
            keys.prepare.extend(scripts.iter().map(run_script));
            keys.inputs.extend(scripts.iter().map(|script| escaped(&script.path)));
        }
        match discovery.migrations.first().map(|migrations| &migrations.steps) {
            Some(Steps::Command { setup, inputs }) => {
                keys.setup = Some(setup.clone());
                keys.inputs.extend(inputs.iter().cloned());
            }
            Some(Steps::Sql(patterns)) => {
                let patterns = patterns.iter().filter(|pattern| !is_mounted(discovery, scripts, pattern));
                keys.sql.extend(patterns.cloned());
            }
            None => {}
        }
        let read = keys.sql.iter().flat_map(|pattern| files(discovery, pattern));
        let read: Vec<_> = read.chain(scripts.iter().map(|script| script.path.clone())).collect();
        let included = included(&discovery.folder, &read);
        keys.inputs.extend(included.iter().map(|file| escaped(file)));
        // Without inputs, the prepare command would run every time.
        if !keys.prepare.is_empty() && keys.setup.is_none() && keys.inputs.is_empty() {
            keys.inputs.clone_from(&keys.sql);
            if keys.inputs.is_empty() {
                keys.inputs.extend(service.map(|service| escaped(&service.file)));
            }
        }
        keys
    }
}

/// Returns the commands that prepare the server and the database as initdb and the image do.
fn preparation(discovery: &Discovery, scripts: &[InitScript], name: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let in_postgres = |statements: &[String]| {
        let options = statements.iter().map(|statement| format!(" -c {}", word(statement)));
        format!("{PSQL} -d postgres{}", options.collect::<String>())
    };
    if let Some(service) = &discovery.service {
        let options = &service.initdb.database_options;
        let drop = format!("DROP DATABASE {}", server::identifier(name));
        if make_database(discovery, service, scripts, name) {
            commands.extend([in_postgres(&[drop]), "export PGDATABASE=postgres".to_owned()]);
        } else if !options.is_empty() {
            let create = format!("CREATE DATABASE {} TEMPLATE template0 {options}", server::identifier(name));
            commands.push(in_postgres(&[drop, create]));
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

/// Returns true if the scripts themselves create the template's database. The image runs them in another one.
fn make_database(
    discovery: &Discovery,
    service: &DatabaseService,
    scripts: &[InitScript],
    name: &str,
) -> bool {
    service.database.as_deref() != Some(name)
        && scripts
            .iter()
            .any(|script| creates(&discovery.folder.text(&script.path), ObjectKind::Database, name))
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

/// Returns a path with a slash, so that bash doesn't search for the file in `PATH`.
fn with_folder(path: &str) -> String {
    if path.contains('/') { path.to_owned() } else { format!("./{path}") }
}
