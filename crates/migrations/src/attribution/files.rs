//! Finds the files of migrations in a project.

use std::fmt;

use super::ledger::MigrationKey;

/// Extensions of files with migrations.
const EXTENSIONS: [&str; 18] = [
    "sql", "py", "rb", "exs", "php", "js", "cjs", "mjs", "ts", "go", "java", "kt", "cs", "rs", "xml", "yaml",
    "yml", "json",
];
/// Names of files whose folder has the migration's name: those of Prisma and Diesel.
const NAMES_IN_FOLDERS: [&str; 3] = ["migration", "up", "down"];

/// A project's files, from which migrations get their names.
#[derive(Clone, Copy)]
pub struct MigrationFiles<'a> {
    paths: &'a [String],
    added: &'a [String],
    project: &'a str,
    read: &'a dyn Fn(&str) -> String,
}

impl fmt::Debug for MigrationFiles<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MigrationFiles").field("paths", &self.paths).finish_non_exhaustive()
    }
}

/// A migration that has a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedMigration {
    pub(super) name: String,
    pub(super) file: Option<String>,
}

impl<'a> MigrationFiles<'a> {
    /// Creates a list of files. `paths` are relative to the project's folder, with slashes, those near the top first.
    /// `read` returns a file's text, or an empty text if it cannot be read.
    #[must_use]
    pub fn new(paths: &'a [String], read: &'a dyn Fn(&str) -> String) -> Self {
        Self { paths, added: &[], project: "", read }
    }

    /// Sets the files that the branch adds. The first unused one is the file of a failed migration. A single unused one is
    /// the file of all statements that nothing else identifies.
    #[must_use]
    pub fn with_added(self, added: &'a [String]) -> Self {
        Self { added, ..self }
    }

    /// Sets the project's folder in the repository. Its files win over those of other projects.
    #[must_use]
    pub fn with_project(self, project: &'a str) -> Self {
        Self { project, ..self }
    }

    /// Returns a rank for a file that may be a migration: the project's own are higher, then those in a folder that says so.
    pub(super) fn rank(&self, path: &str) -> (bool, bool) {
        let rest = path.strip_prefix(self.project);
        let is_own = rest.is_some_and(|rest| self.project.is_empty() || rest.starts_with('/'));
        (is_own, is_named(path))
    }

    /// Returns the text of a file.
    pub(super) fn text(&self, path: &str) -> String {
        (self.read)(path)
    }

    /// Returns the SQL files and their texts.
    pub(super) fn sql(&self) -> impl Iterator<Item = (&'a str, String)> + use<'a> {
        let read = self.read;
        let sql = self.paths.iter().filter(|path| extension(path) == Some("sql"));
        sql.map(move |path| (path.as_str(), read(path)))
    }

    /// Returns the name that users know, and the file if the project has one.
    pub(super) fn resolve(&self, key: &MigrationKey) -> NamedMigration {
        match key {
            MigrationKey::Name(name) => NamedMigration { name: name.clone(), file: self.with_name(name) },
            MigrationKey::NameInFile(name, file) => {
                NamedMigration { name: name.clone(), file: self.ending_with(file) }
            }
            MigrationKey::Version(version) => named_after_file(version, self.with_version(version)),
            MigrationKey::JournalTime(time) => named_after_file(time, self.at_journal_time(time)),
            MigrationKey::Revision { before, after } => self.revision(before.as_deref(), after.as_deref()),
        }
    }

    /// Finds a file by its name with or without its extension, or by its folder's.
    fn with_name(&self, name: &str) -> Option<String> {
        let mut candidates = self.candidates();
        let fits = |path: &&str| {
            let file = file_name(path);
            file == name
                || stem(file) == name
                || name_of_file(path) == name
                || path.ends_with(&format!("/{name}"))
        };
        candidates.find(fits).map(str::to_owned)
    }

    fn ending_with(&self, end: &str) -> Option<String> {
        let whole = format!("/{end}");
        self.paths.iter().find(|path| *path == end || path.ends_with(&whole)).cloned()
    }

    /// Finds a file by the number at the start of its name. A file for the way back is no answer.
    fn with_version(&self, version: &str) -> Option<String> {
        let wanted = version.trim_start_matches('0');
        let fits = |path: &&str| {
            number(&name_of_file(path)).is_some_and(|number| number.trim_start_matches('0') == wanted)
                && !is_way_back(path)
        };
        self.candidates().find(fits).map(str::to_owned)
    }

    /// Finds the SQL file of a step in Drizzle's journal.
    fn at_journal_time(&self, time: &str) -> Option<String> {
        let journals = self.paths.iter().filter(|path| file_name(path) == "_journal.json");
        journals.into_iter().find_map(|path| {
            let journal: serde_json::Value = serde_json::from_str(&(self.read)(path)).ok()?;
            let entries = journal.get("entries")?.as_array()?;
            let entry = entries.iter().find(|entry| {
                entry
                    .get("when")
                    .and_then(serde_json::Value::as_u64)
                    .is_some_and(|when| Ok(when) == time.parse())
            })?;
            self.ending_with(&format!("{}.sql", entry.get("tag")?.as_str()?))
        })
    }

    /// Finds Alembic's file. A step back belongs to the revision that it removes, whose file names the other one.
    fn revision(&self, before: Option<&str>, after: Option<&str>) -> NamedMigration {
        let file = |revision: Option<&str>| revision.and_then(|revision| self.with_revision(revision));
        let goes_back = match (before, after) {
            (Some(before), Some(after)) => {
                let parent =
                    |revision| assigned(&(self.read)(&self.with_revision(revision)?), "down_revision");
                parent(before).is_some_and(|parents| parents.contains(after))
            }
            (Some(_), None) => true,
            _ => false,
        };
        let revision = if goes_back { before } else { after };
        named_after_file(revision.unwrap_or_default(), file(revision))
    }

    fn with_revision(&self, revision: &str) -> Option<String> {
        let python = || self.candidates().filter(|path| extension(path) == Some("py"));
        let has_name = |path: &&str| {
            let rest = file_name(path).strip_prefix(revision);
            rest.is_some_and(|rest| rest.starts_with(['_', '.', '-']))
        };
        let assigns =
            |path: &&str| assigned(&(self.read)(path), "revision").is_some_and(|value| value == revision);
        let in_versions = || python().filter(|path| path.contains("versions/"));
        python().find(has_name).or_else(|| in_versions().find(assigns)).map(str::to_owned)
    }

    /// Returns the file that Alembic runs after this revision, or that other tools run after this file.
    pub(super) fn next(&self, key: &MigrationKey, file: &str) -> Option<String> {
        match key {
            MigrationKey::Revision { after, .. } => {
                let after = after.as_deref()?;
                let follows = |path: &&str| {
                    assigned(&(self.read)(path), "down_revision").is_some_and(|parent| parent == after)
                };
                self.siblings(file).find(follows).map(str::to_owned)
            }
            MigrationKey::NameInFile(..) => {
                // Django's migrations name those before them.
                let quoted = ['"', '\''].map(|quote| format!("{quote}{}{quote}", stem(file_name(file))));
                let python = self.siblings(file).filter(|path| extension(path) == Some("py"));
                let names = |path: &&str| {
                    let text = (self.read)(path);
                    quoted.iter().any(|name| text.contains(name))
                };
                python.filter(|path| *path != file).find(names).map(str::to_owned)
            }
            _ => {
                let later = self
                    .siblings(file)
                    .filter(|path| extension(path) == extension(file) && order(path) > order(file));
                later.min_by_key(|path| order(path)).map(str::to_owned)
            }
        }
    }

    /// Returns the added files with migrations, without those that `is_used` knows, in their order.
    pub(super) fn unused_additions(&self, is_used: impl Fn(&str) -> bool) -> Vec<&'a str> {
        let is_added = |path: &&str| self.added.iter().any(|added| added == path);
        let mut unused: Vec<_> =
            self.candidates().filter(is_added).filter(|path| is_named(path) && !is_used(path)).collect();
        unused.sort_by_key(|path| order(path));
        unused
    }

    /// Returns the files in the same folder that may be migrations.
    fn siblings(&self, file: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        let folder = folder(file).to_owned();
        self.candidates().filter(move |path| self::folder(path) == folder)
    }

    /// Returns the files that may be migrations, those with the highest rank first.
    fn candidates(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let files = *self;
        let ranks = [(true, true), (true, false), (false, true), (false, false)].into_iter();
        let candidates =
            ranks.flat_map(move |rank| files.paths.iter().filter(move |path| files.rank(path) == rank));
        candidates
            .map(String::as_str)
            .filter(|path| extension(path).is_some_and(|extension| EXTENSIONS.contains(&extension)))
    }
}

/// Returns true if a path is that of a migration by its folder and its extension.
#[must_use]
pub fn is_migration_file(path: &str) -> bool {
    is_named(path) && extension(path).is_some_and(|extension| EXTENSIONS.contains(&extension))
}

/// Returns true for a path through a folder such as `migrations`, `versions` or `changelog`.
fn is_named(path: &str) -> bool {
    ["migrat", "versions", "changelog"].iter().any(|word| folder(path).contains(word))
}

fn named_after_file(key: &str, file: Option<String>) -> NamedMigration {
    let name = file.as_deref().map_or_else(|| key.to_owned(), name_of_file);
    NamedMigration { name, file }
}

/// Returns the name of a migration: its file's, or its folder's if the file's says nothing. Django's has its application.
pub(super) fn name_of_file(path: &str) -> String {
    let file = file_name(path);
    let in_app = folder(path).strip_suffix("/migrations").map(file_name);
    if let (Some(app), Some("py")) = (in_app, extension(path)) {
        return format!("{app}.{}", stem(file));
    }
    let own = if NAMES_IN_FOLDERS.contains(&stem(file)) { file_name(folder(path)) } else { "" };
    if own.is_empty() { file.to_owned() } else { own.to_owned() }
}

/// Returns true for a file that undoes a migration.
fn is_way_back(path: &str) -> bool {
    path.ends_with(".down.sql") || path.ends_with("/down.sql")
}

/// Returns the digits at the start of a name, after the V of refinery and without the dashes of Diesel.
fn number(name: &str) -> Option<String> {
    let name = name.strip_prefix('V').unwrap_or(name);
    let is_part = |character: &char| character.is_ascii_digit() || *character == '-';
    let number: String = name.chars().take_while(is_part).filter(char::is_ascii_digit).collect();
    (!number.is_empty()).then_some(number)
}

/// Returns the text after `name =` or `name: type =` in Python, without quotes.
fn assigned(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?;
        let value = rest
            .split_once('=')
            .filter(|(before, _)| before.trim().is_empty() || before.trim_start().starts_with(':'))?;
        Some(value.1.trim().trim_matches(['"', '\'']).to_owned())
    })
}

/// Returns a key by which V10 comes after V9.
fn order(path: &str) -> (usize, String, &str) {
    let number = number(file_name(path)).unwrap_or_default();
    let number = number.trim_start_matches('0');
    (number.len(), number.to_owned(), path)
}

fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn stem(file: &str) -> &str {
    file.split('.').next().unwrap_or(file)
}

fn extension(path: &str) -> Option<&str> {
    file_name(path).rsplit_once('.').map(|(_, extension)| extension)
}
