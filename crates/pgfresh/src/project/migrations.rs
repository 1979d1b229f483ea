//! Detects the tool that migrates a project's database, the command that runs it and the files that it reads.

mod frameworks;
mod jvm;
mod node;
mod own_command;
mod python;
mod sql;

use super::folder::Folder;

/// A way to build the project's schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Migrations {
    /// Name of the tool.
    pub(crate) tool: &'static str,
    /// File that shows that the project uses the tool.
    pub(crate) found_in: String,
    pub(crate) steps: Steps,
    /// Advice for the user, each a sentence.
    pub(crate) notes: Vec<String>,
}

/// Steps of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Steps {
    /// A shell command, and patterns for the files that it reads.
    Command { setup: String, inputs: Vec<String> },
    /// Patterns for SQL files.
    Sql(Vec<String>),
}

impl Steps {
    /// Returns the patterns for all files of these steps.
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
    const TOOLS: [fn(&Folder) -> Option<Migrations>; 20] = [
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

/// Whether a template would find a file for this pattern. A pattern without a file is an error there.
fn matches(folder: &Folder, pattern: &str) -> bool {
    !template::matching_files(folder.path(), pattern).is_empty()
}

/// Converts texts to the patterns of a template.
fn patterns<const N: usize>(patterns: [&str; N]) -> Vec<String> {
    patterns.map(str::to_owned).into()
}

/// Returns a pattern for all files in a folder and below it.
fn below(folder: &str) -> String {
    if folder.is_empty() { "**".to_owned() } else { format!("{}/**", escaped(folder)) }
}

/// Returns a pattern that matches only this path.
pub(crate) fn escaped(path: &str) -> String {
    let special = |character| matches!(character, '*' | '?' | '[' | ']' | '{' | '}');
    path.chars().map(|c| if special(c) { format!("[{c}]") } else { c.to_string() }).collect()
}

/// Returns a path as one word of a shell command.
pub(crate) fn word(path: &str) -> String {
    shlex::try_quote(path).map_or_else(|_| "''".to_owned(), Into::into)
}

/// Returns a file's folder, or an empty text for a file at the top.
fn parent(file: &str) -> &str {
    file.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn has_extension(file: &str, extension: &str) -> bool {
    std::path::Path::new(file).extension().is_some_and(|own| own == extension)
}

fn name(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}

/// Returns the first text in quotes after the word `key` and a colon or equals sign, as JavaScript and TOML have it.
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

/// Removes `./` and the last slash from a folder in a configuration file.
fn plain_folder(folder: &str) -> String {
    let folder = folder.trim_start_matches("%(here)s/").trim_start_matches("./").trim_end_matches('/');
    if folder == "." { String::new() } else { folder.to_owned() }
}

#[cfg(test)]
mod tests;
