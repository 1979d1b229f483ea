//! Finds the PostgreSQL service in Docker Compose files, and reads the options, scripts and variables that its
//! container starts with.

mod command;
mod dockerfile;
mod image;
mod initdb;
mod scripts;
mod service;
mod yaml;

use std::path::{Path, PathBuf};

pub(crate) use command::{Decision, ServerSetting};
pub(crate) use image::Image;
pub(crate) use initdb::InitdbArguments;
pub(crate) use scripts::{InitScript, ScriptKind};

use super::folder;
use super::variables::Variables;
use service::{Loader, Service};

/// Names of Compose files. Docker Compose reads the first file that exists.
const NAMES: [&str; 4] = ["compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"];

/// Folder in the container whose scripts run once, in name order.
const SCRIPT_FOLDER: &str = "/docker-entrypoint-initdb.d";

/// A PostgreSQL service and the files that describe it.
#[derive(Debug)]
pub(crate) struct DatabaseService {
    /// Path of the Compose file, relative to the project.
    pub(crate) file: String,
    pub(crate) name: String,
    pub(crate) image: Image,
    pub(crate) settings: Vec<ServerSetting>,
    pub(crate) initdb: InitdbArguments,
    pub(crate) scripts: Vec<InitScript>,
    pub(crate) user: Option<String>,
    pub(crate) database: Option<String>,
    pub(crate) has_password: bool,
    /// Other PostgreSQL services, which pgfresh doesn't take over.
    pub(crate) others: Vec<String>,
    /// Parts of the service that pgfresh doesn't take over.
    pub(crate) notes: Vec<String>,
}

/// Result of the search for a PostgreSQL service.
#[derive(Debug, Default)]
pub(crate) struct Search {
    pub(crate) service: Option<DatabaseService>,
    /// Files that pgfresh couldn't read, with reasons.
    pub(crate) problems: Vec<String>,
}

/// Searches `project`, and in a repository also the folders above `project` up to the repository's root. `variables`
/// come from the project's own `.env`.
pub(crate) fn find(project: &Path, variables: &Variables) -> Search {
    let mut search = Search::default();
    let root = project.ancestors().find(|folder| folder.join(".git").exists()).unwrap_or(project);
    for folder in project.ancestors().take_while(|folder| folder.starts_with(root)) {
        let mut own =
            if folder == project { variables.clone() } else { Variables::read(&folder.join(".env")) };
        // The shell that starts Docker Compose sets this variable.
        own.add_default("PWD", folder.display().to_string());
        for path in files(folder) {
            let mut loader = Loader::new(project, &own);
            let services = loader.load(&path);
            search.problems.append(&mut loader.problems);
            if let Some(service) = choose(&services, variables) {
                let file = relative(project, &path);
                search.service = Some(describe(service, &services, file, project));
                return search;
            }
        }
    }
    search
}

/// Returns a folder's Compose files in search order: first the files that Docker Compose reads by default, then others
/// such as `docker-compose.dev.yml`.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut names: Vec<String> = NAMES.map(str::to_owned).into();
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut more: Vec<_> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| (name.starts_with("docker-compose") || name.starts_with("compose")) && is_yaml(name))
        .filter(|name| !NAMES.contains(&name.as_str()) && !name.contains(".override."))
        .collect();
    more.sort_by_key(|name| (!is_for_tests(name), name.clone()));
    names.append(&mut more);
    names.extend(NAMES.map(|name| format!(".devcontainer/{name}")));
    names.iter().map(|name| folder.join(name)).filter(|path| path.symlink_metadata().is_ok()).collect()
}

fn is_yaml(name: &str) -> bool {
    let extension = Path::new(name).extension().and_then(std::ffi::OsStr::to_str);
    matches!(extension, Some("yml" | "yaml"))
}

/// Returns the service that tests would use: the service that `DATABASE_URL` names by its host, port or database, or
/// else a service for tests, or else the first service.
fn choose<'s>(services: &'s [Service], variables: &Variables) -> Option<&'s Service> {
    let url = variables.get("DATABASE_URL").and_then(|url| url::Url::parse(url).ok());
    let url = url.as_ref();
    let differs = |service: &Service| {
        let has_host = url.and_then(url::Url::host_str) == Some(&service.name);
        let has_port = url.is_some_and(|url| service.ports.contains(&url.port().unwrap_or(5432)));
        let database = url.map(|url| url.path().trim_start_matches('/'));
        let has_database = database.is_some() && database == service.database();
        [has_host, has_port, has_database, is_for_tests(&service.name)].map(|is_met| !is_met)
    };
    services.iter().filter(|service| service.image().is_some()).min_by_key(|service| differs(service))
}

/// Returns true for a name with the word "test", such as `db-test` or `testdb`.
fn is_for_tests(name: &str) -> bool {
    const OTHERS: [&str; 8] = ["", "s", "ing", "db", "pg", "database", "postgres", "postgresql"];
    let is_word = |word: &str| {
        let rest = word.strip_prefix("test").or_else(|| word.strip_suffix("test"));
        rest.is_some_and(|rest| OTHERS.contains(&rest))
    };
    name.to_ascii_lowercase().split(|c: char| !c.is_ascii_alphabetic()).any(is_word)
}

fn describe(service: &Service, services: &[Service], file: String, project: &Path) -> DatabaseService {
    let mut notes = Vec::new();
    let initdb = initdb::parse(service.variable("POSTGRES_INITDB_ARGS").unwrap_or_default(), &mut notes);
    let mut settings = command::settings(&service.command, &mut notes);
    settings.extend(initdb.settings.iter().cloned());
    if let Some(zone) = service.variable("PGTZ").or_else(|| service.variable("TZ")) {
        settings.push(ServerSetting::new("timezone", zone));
    }
    let others = services.iter().filter(|other| other.image().is_some() && other.name != service.name);
    DatabaseService {
        file,
        name: service.name.clone(),
        image: service.image().unwrap_or_default(),
        settings,
        initdb,
        scripts: scripts::collect(service, project, &mut notes),
        database: service.database().map(str::to_owned),
        user: service.user().map(str::to_owned),
        has_password: service.text("POSTGRES_PASSWORD").is_some(),
        others: others.map(|other| other.name.clone()).collect(),
        notes,
    }
}

/// Returns true if `target` is the init script folder or inside of it.
fn is_script_target(target: &str) -> bool {
    target.strip_prefix(SCRIPT_FOLDER).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns `path` relative to `project`, such as `../docker-compose.yml`.
fn relative(project: &Path, path: &Path) -> String {
    let up = project.ancestors().position(|folder| path.starts_with(folder)).unwrap_or_default();
    let base = project.ancestors().nth(up).unwrap_or(Path::new(""));
    let rest = path.strip_prefix(base).unwrap_or(path);
    format!("{}{}", "../".repeat(up), rest.display())
}

#[cfg(test)]
mod tests;
