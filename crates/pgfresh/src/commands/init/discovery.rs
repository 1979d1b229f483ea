//! Collects facts about a project for `pgfresh init`.

use std::collections::BTreeSet;
use std::path::Path;

use url::Url;

use crate::project::compose::{self, DatabaseService};
use crate::project::folder::Folder;
use crate::project::migrations::{self, Migrations};
use crate::project::variables::Variables;
use crate::project::{self, Project};
use crate::settings;

/// Files that define variables. Files for tests come first.
const ENVIRONMENTS: [&str; 3] = [".env.test", ".env", ".env.example"];
/// Maximum number of subfolders that init names.
const MAX_BELOW: usize = 10;
/// Maximum number of files that init searches for a role's name.
const MAX_SEARCHED: usize = 500;

/// A project as init found it.
pub(super) struct Discovery {
    pub(super) folder: Folder,
    /// `None` if no file identifies the language.
    pub(super) project: Option<Project>,
    /// Tools that migrate the database, in order of preference.
    pub(super) migrations: Vec<Migrations>,
    pub(super) service: Option<DatabaseService>,
    /// Name of the database, and the file that contains the name.
    pub(super) database: Option<(String, String)>,
    /// Name of a role that the scripts or migrations expect, and the file that contains the name.
    pub(super) role: Option<(String, String)>,
    /// Files that pgfresh couldn't read, with reasons.
    pub(super) problems: Vec<String>,
    /// Subfolders that contain a project.
    pub(super) below: Vec<String>,
}

impl Discovery {
    pub(super) fn of(path: &Path) -> Self {
        let folder = Folder::new(path);
        let project = project::known(&folder);
        let migrations = migrations::detect(&folder);
        let search = compose::find(path, &Variables::read(&path.join(".env")));
        let (url, service) = (url_of(path), search.service);
        let named = url.as_ref().and_then(|(url, file)| {
            let name = decoded(url.path().trim_start_matches('/'));
            Some((name, file.clone())).filter(|(name, _)| settings::is_template_name(name))
        });
        let of_service = |name: fn(&DatabaseService) -> Option<&String>| {
            service.as_ref().and_then(|service| Some((name(service)?.clone(), service.file.clone())))
        };
        let database = named.or_else(|| {
            of_service(|service| service.database.as_ref())
                .filter(|(name, _)| settings::is_template_name(name))
        });
        let user = of_service(|service| service.user.as_ref())
            .or_else(|| url.map(|(url, file)| (decoded(url.username()), file)));
        let below =
            if project.is_none() && migrations.is_empty() { projects_below(path) } else { Vec::new() };
        let mut discovery = Self {
            folder,
            project,
            migrations,
            service,
            database,
            role: None,
            problems: search.problems,
            below,
        };
        discovery.role = user.filter(|(name, _)| discovery.needs_role(name));
        discovery
    }

    /// Returns a subfolder if only subfolders contain a project.
    pub(super) fn only_below(&self) -> Option<&str> {
        self.below.first().map(String::as_str)
    }

    /// Returns the command that runs the tests.
    pub(super) fn test_command(&self) -> &str {
        self.project.as_ref().map_or(project::UNKNOWN_COMMAND, |project| &project.command)
    }

    /// Returns true if a script or migration names the role, and none of them creates it.
    fn needs_role(&self, role: &str) -> bool {
        let is_usual = role.is_empty() || role == server::SUPERUSER || role.contains(char::is_control);
        if is_usual {
            return false;
        }
        let scripts =
            self.service.iter().flat_map(|service| &service.scripts).map(|script| script.path.clone());
        let patterns =
            self.migrations.first().map(|migrations| migrations.steps.patterns()).unwrap_or_default();
        let files = patterns.iter().flat_map(|pattern| template::matching_files(self.folder.path(), pattern));
        let texts: Vec<_> =
            scripts.chain(files).take(MAX_SEARCHED).map(|file| self.folder.text(&file)).collect();
        texts.iter().any(|text| names_role(text, role))
            && !texts.iter().any(|text| creates(text, ObjectKind::Role, role))
    }
}

/// Returns the value of `DATABASE_URL` and the file that contains it.
fn url_of(path: &Path) -> Option<(Url, String)> {
    ENVIRONMENTS.iter().find_map(|file| {
        let variables = Variables::read(&path.join(file));
        let url = Url::parse(variables.get("DATABASE_URL")?).ok()?;
        url.scheme().starts_with("postgres").then(|| (url, (*file).to_owned()))
    })
}

/// Decodes a URL part. Returns an empty text if the part isn't plain text.
fn decoded(part: &str) -> String {
    let bytes = part.as_bytes();
    let mut decoded = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let byte = part.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        if let Some(byte) = byte.filter(|_| bytes[at] == b'%') {
            decoded.push(byte);
            at += 3;
        } else {
            decoded.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8(decoded).unwrap_or_default()
}

/// Returns the subfolders of `path`, at most two levels below, that have migrations or a recognized language. Those with
/// migrations come first.
fn projects_below(path: &Path) -> Vec<String> {
    let folder = Folder::new(path);
    let mut names = BTreeSet::new();
    for file in folder.files() {
        names.extend(file.match_indices('/').take(2).map(|(at, _)| file[..at].to_owned()));
    }
    let mut found: Vec<(bool, String)> = Vec::new();
    for name in names {
        let is_part = |(_, above): &(bool, String)| name.starts_with(&format!("{above}/"));
        let below = Folder::new(&path.join(&name));
        let lacks_migrations = migrations::detect(&below).is_empty();
        if !found.iter().any(is_part) && (project::known(&below).is_some() || !lacks_migrations) {
            found.push((lacks_migrations, name));
        }
    }
    found.sort();
    found.into_iter().map(|(_, name)| name).take(MAX_BELOW).collect()
}

/// Returns true if a script or migration creates the database or role `name`.
pub(super) fn creates(text: &str, kind: ObjectKind, name: &str) -> bool {
    let (kinds, program): (&[&str], _) = match kind {
        ObjectKind::Database => (&["database"], "createdb"),
        ObjectKind::Role => (&["role", "user"], "createuser"),
    };
    let (text, name) = (text.to_ascii_lowercase(), name.to_ascii_lowercase());
    let words = |text| str::split(text, |c| !is_part(c) && c != '-').filter(|word| !word.is_empty());
    let all: Vec<&str> = words(&text).collect();
    all.windows(3).any(|words| words[0] == "create" && kinds.contains(&words[1]) && words[2] == name)
        || kinds.iter().any(|kind| text.contains(&format!("create {kind} \"{name}\"")))
        || text
            .lines()
            .any(|line| words(line).any(|word| word == program) && words(line).any(|word| word == name))
}

/// Kind of an object that belongs to the whole server.
#[derive(Debug, Clone, Copy)]
pub(super) enum ObjectKind {
    Database,
    Role,
}

/// Returns true if `role` appears in `text` where SQL, a URL or a configuration names a role, for example after `OWNER
/// TO`.
fn names_role(text: &str, role: &str) -> bool {
    const BEFORE: [&str; 7] = ["to", "owner", "authorization", "role", "user", "username", "group"];
    text.match_indices(role).any(|(at, _)| {
        let (mut before, after) = (&text[..at], &text[at + role.len()..]);
        if before.ends_with(is_part) || after.starts_with(is_part) {
            return false;
        }
        if before.ends_with("://") && after.starts_with([':', '@']) {
            return true;
        }
        // A role in a list comes after other roles and commas.
        loop {
            let rest = before.trim_end_matches(|c: char| !is_part(c));
            let word = rest.rsplit(|c| !is_part(c)).next().unwrap_or_default();
            if word.is_empty() || !before[rest.len()..].contains(',') {
                return BEFORE.contains(&word.to_ascii_lowercase().as_str());
            }
            before = &rest[..rest.len() - word.len()];
        }
    })
}

fn is_part(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}
