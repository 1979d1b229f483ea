//! Detects which tool migrates a project's database, the command that runs the tool, and the files that
//! the tool reads.

mod frameworks;
mod jvm;
mod node;
mod own_command;
mod python;
mod sql;

use super::folder::Folder;
pub(crate) use sql::included;

/// A way to build the project's schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Migrations {
    /// Name of the tool.
    pub(crate) tool: &'static str,
    /// File that identifies the tool.
    pub(crate) found_in: String,
    pub(crate) steps: Steps,
    /// Advice for the user, in sentences.
    pub(crate) notes: Vec<String>,
}

/// A template's steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Steps {
    /// A shell command, with patterns for the files that the command reads.
    Command { setup: String, inputs: Vec<String> },
    /// Patterns for SQL files.
    Sql(Vec<String>),
}

impl Steps {
    /// Returns the patterns for all files that these steps use.
    pub(crate) fn patterns(&self) -> &[String] {
        match self {
            Self::Command { inputs, .. } => inputs,
            Self::Sql(files) => files,
        }
    }
}

impl Migrations {
    fn command(tool: &'static str, found_in: &str, setup: impl Into<String>, inputs: Vec<String>) -> Self {
        let steps = Steps::Command { setup: setup.into(), inputs };
        Self { tool, found_in: found_in.to_owned(), steps, notes: Vec::new() }
    }

    fn sql(tool: &'static str, found_in: &str, files: Vec<String>) -> Self {
        Self { tool, found_in: found_in.to_owned(), steps: Steps::Sql(files), notes: Vec::new() }
    }

    fn note(mut self, note: impl Into<Option<String>>) -> Self {
        self.notes.extend(note.into());
        self
    }
}

/// Returns the tools that the project uses, the most specific one first. Plain SQL comes last.
pub(crate) fn detect(folder: &Folder) -> Vec<Migrations> {
    const TOOLS: [fn(&Folder) -> Option<Migrations>; 22] = [
        python::django,
        python::alembic,
        frameworks::rails,
        frameworks::ecto,
        frameworks::laravel,
        own_command::go,
        own_command::rust,
        own_command::maven,
        jvm::flyway,
        jvm::liquibase,
        node::prisma,
        node::drizzle,
        node::knex,
        node::sequelize,
        node::node_pg_migrate,
        sql::goose,
        sql::sql_migrate,
        sql::tern,
        sql::golang_migrate,
        sql::dbmate,
        sql::sqlx,
        sql::diesel,
    ];
    let mut found: Vec<_> = TOOLS.iter().filter_map(|tool| tool(folder)).collect();
    if found.is_empty() {
        found.extend(node::script(folder).or_else(|| sql::plain(folder)));
    }
    for migrations in &mut found {
        match &mut migrations.steps {
            Steps::Command { inputs, .. } => inputs.retain(|pattern| matches(folder, pattern)),
            Steps::Sql(files) => files.retain(|pattern| matches(folder, pattern)),
        }
    }
    found.retain(|migrations| !matches!(&migrations.steps, Steps::Sql(files) if files.is_empty()));
    found
}

/// Returns true if a template would find a file for this pattern. A template rejects a pattern without a file.
fn matches(folder: &Folder, pattern: &str) -> bool {
    !template::matching_files(folder.path(), pattern).is_empty()
}

/// Converts texts to a template's patterns.
fn patterns<const N: usize>(patterns: [&str; N]) -> Vec<String> {
    patterns.map(str::to_owned).into()
}

/// Returns a pattern that matches all files in a folder and its subfolders.
fn below(folder: &str) -> String {
    if folder.is_empty() { "**".to_owned() } else { format!("{}/**", escaped(folder)) }
}

/// Returns a pattern that matches only this path.
pub(crate) fn escaped(path: &str) -> String {
    let special = |character| matches!(character, '*' | '?' | '[' | ']' | '{' | '}');
    path.chars().map(|c| if special(c) { format!("[{c}]") } else { c.to_string() }).collect()
}

/// Quotes a path as a single word of a shell command.
pub(crate) fn word(path: &str) -> String {
    shlex::try_quote(path).map_or_else(|_| "''".to_owned(), Into::into)
}

/// Returns a file's folder, or an empty text for a file at the top level.
fn parent(file: &str) -> &str {
    file.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn has_extension(file: &str, extension: &str) -> bool {
    std::path::Path::new(file).extension().is_some_and(|own| own == extension)
}

fn name(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}

/// Returns the first quoted text after `key` and a colon or equals sign, as in JavaScript and TOML.
fn quoted_after(text: &str, key: &str) -> Option<String> {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    text.match_indices(key).find_map(|(at, _)| {
        let rest = &text[at + key.len()..];
        if text[..at].ends_with(is_part) || rest.starts_with(is_part) {
            return None;
        }
        let rest = rest.trim_start_matches(['"', '\'']).trim_start();
        let rest = rest.strip_prefix([':', '='])?.trim_start();
        let quote = rest.chars().next().filter(|first| ['"', '\'', '`'].contains(first))?;
        rest[1..].split_once(quote).map(|(value, _)| value.to_owned())
    })
}

/// Removes a leading `./` and a trailing slash from a folder in a configuration file.
fn plain_folder(folder: &str) -> String {
    let folder = folder.trim_start_matches("%(here)s/").trim_start_matches("./").trim_end_matches('/');
    if folder == "." { String::new() } else { folder.to_owned() }
}

#[cfg(test)]
mod tests;
