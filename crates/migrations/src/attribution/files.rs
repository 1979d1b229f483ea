//! Finds migration files in a project.

use std::fmt;

use super::ledger::MigrationKey;

/// Extensions that migration files have.
const EXTENSIONS: [&str; 18] = [
    "sql", "py", "rb", "exs", "php", "js", "cjs", "mjs", "ts", "go", "java", "kt", "cs", "rs", "xml", "yaml",
    "yml", "json",
];
/// File names that say nothing about the migration, because its folder has the name instead, as in Prisma and Diesel.
const NAMES_IN_FOLDERS: [&str; 3] = ["migration", "up", "down"];

/// The files of a project, which give migrations their names.
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

/// A migration with its name, and with its file if the project has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedMigration {
    pub(super) name: String,
    pub(super) file: Option<String>,
}

impl<'a> MigrationFiles<'a> {
    /// Creates a list of files. `paths` are relative to the project folder, separated by slashes, and sorted by depth,
    /// top level first. `read` returns a file's text, or an empty string if the file can't be read.
    #[must_use]
    pub fn new(paths: &'a [String], read: &'a dyn Fn(&str) -> String) -> Self {
        Self { paths, added: &[], project: "", read }
    }

    /// Sets the files that the branch adds. If a migration failed, its file is the first added file that no other
    /// migration uses. If exactly one added file is unused, all statements that nothing else identifies belong to it.
    #[must_use]
    pub fn with_added(self, added: &'a [String]) -> Self {
        Self { added, ..self }
    }

    /// Sets the project folder in the repository. Files in it are preferred to those of other projects.
    #[must_use]
    pub fn with_project(self, project: &'a str) -> Self {
        Self { project, ..self }
    }

    /// Returns the rank of a possible migration file. The project's own files rank highest, then those in a folder
    /// whose name suggests migrations.
    pub(super) fn rank(&self, path: &str) -> (bool, bool) {
        let rest = path.strip_prefix(self.project);
        let is_own = rest.is_some_and(|rest| self.project.is_empty() || rest.starts_with('/'));
        (is_own, is_named(path))
    }

    pub(super) fn text(&self, path: &str) -> String {
        (self.read)(path)
    }

    /// Returns the SQL files with their texts.
    pub(super) fn sql(&self) -> impl Iterator<Item = (&'a str, String)> + use<'a> {
        let read = self.read;
        let sql = self.paths.iter().filter(|path| extension(path) == Some("sql"));
        sql.map(move |path| (path.as_str(), read(path)))
    }

    /// Returns the migration's name as users know it, and its file if the project has one.
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

    /// Finds a file by its name, with or without the extension, or by its folder's name.
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

    /// Finds a file by the number at the start of its name. Ignores files that undo a migration.
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

    /// Finds Alembic's file for a step. A downgrade belongs to the revision that it removes, and the file of this
    /// revision names the previous one.
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

    /// Returns the file that comes next: the one that Alembic runs after this revision, or that another tool runs after
    /// this file.
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
                // A Django migration names the migrations that it depends on.
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

    /// Returns the migration files that the branch adds, in their order, except those for which `is_used` returns true.
    pub(super) fn unused_additions(&self, is_used: impl Fn(&str) -> bool) -> Vec<&'a str> {
        let is_added = |path: &&str| self.added.iter().any(|added| added == path);
        let mut unused: Vec<_> =
            self.candidates().filter(is_added).filter(|path| is_named(path) && !is_used(path)).collect();
        unused.sort_by_key(|path| order(path));
        unused
    }

    /// Returns the possible migration files in the same folder.
    fn siblings(&self, file: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        let folder = folder(file).to_owned();
        self.candidates().filter(move |path| self::folder(path) == folder)
    }

    /// Returns all possible migration files, those with the highest rank first.
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

/// Returns true if the folder and the extension of `path` are those of a migration file.
#[must_use]
pub fn is_migration_file(path: &str) -> bool {
    is_named(path) && extension(path).is_some_and(|extension| EXTENSIONS.contains(&extension))
}

/// Returns true if a folder in `path` has a name such as `migrations`, `versions` or `changelog`.
fn is_named(path: &str) -> bool {
    ["migrat", "versions", "changelog"].iter().any(|word| folder(path).contains(word))
}

fn named_after_file(key: &str, file: Option<String>) -> NamedMigration {
    let name = file.as_deref().map_or_else(|| key.to_owned(), name_of_file);
    NamedMigration { name, file }
}

/// Returns a migration's name: its file name, or its folder's name if the file name says nothing. The name of a Django
/// migration includes its application.
pub(super) fn name_of_file(path: &str) -> String {
    let file = file_name(path);
    let in_app = folder(path).strip_suffix("/migrations").map(file_name);
    if let (Some(app), Some("py")) = (in_app, extension(path)) {
        return format!("{app}.{}", stem(file));
    }
    let own = if NAMES_IN_FOLDERS.contains(&stem(file)) { file_name(folder(path)) } else { "" };
    if own.is_empty() { file.to_owned() } else { own.to_owned() }
}

/// Returns true if the file undoes a migration.
fn is_way_back(path: &str) -> bool {
    path.ends_with(".down.sql") || path.ends_with("/down.sql")
}

/// Returns the digits at the start of a name, without the V that refinery puts before them and the dashes that Diesel
/// puts between them.
fn number(name: &str) -> Option<String> {
    let name = name.strip_prefix('V').unwrap_or(name);
    let is_part = |character: &char| character.is_ascii_digit() || *character == '-';
    let number: String = name.chars().take_while(is_part).filter(char::is_ascii_digit).collect();
    (!number.is_empty()).then_some(number)
}

/// Returns the value after `name =` or `name: type =` in Python code, without quotes.
fn assigned(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?;
        let value = rest
            .split_once('=')
            .filter(|(before, _)| before.trim().is_empty() || before.trim_start().starts_with(':'))?;
        Some(value.1.trim().trim_matches(['"', '\'']).to_owned())
    })
}

/// Returns a sort key that puts V10 after V9.
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
