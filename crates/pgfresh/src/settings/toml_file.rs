//! Reads tables from a TOML file, reporting errors with their position in the file.

use std::ops::Range;
use std::path::Path;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::schema::{keys_of, tables};
use crate::failure::Failure;

/// A TOML file. Its text is needed to locate errors.
pub(super) struct File<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
}

impl File<'_> {
    /// Reads a table. `title` is the text between the table's brackets.
    pub(super) fn read<T: DeserializeOwned>(&self, title: &str, table: &DeTable<'_>) -> Result<T, Failure> {
        let known = keys_of::<T>();
        if let Some(key) = table.keys().find(|key| !known.contains(&key.get_ref().as_ref())) {
            let what = format!("key in [{title}]");
            return Err(self.unknown(key.span().start, key.get_ref(), &what, known, &tables()));
        }
        let value = Spanned::new(0..0, DeValue::Table(table.clone()));
        T::deserialize(ValueDeserializer::from(value)).map_err(|error| {
            let span = error.span().unwrap_or_default();
            self.bad(span.start, key_of(table, &span).unwrap_or(title), error.message())
        })
    }

    /// Builds the error for an unknown `word`. Suggests the most similar known word, or the table that has this word
    /// as a key, or else lists all known words.
    pub(super) fn unknown(
        &self,
        at: usize,
        word: &str,
        what: &str,
        known: &[&str],
        tables: &[(&str, &[&str])],
    ) -> Failure {
        let near = |key: &str, least: f64| Some(strsim::jaro_winkler(key, word)).filter(|near| *near > least);
        let keys = tables.iter().flat_map(|(table, keys)| keys.iter().map(move |key| (*key, *table)));
        let elsewhere = keys.filter_map(|(key, table)| Some((near(key, 0.85)?, key, Some(table))));
        let here = known.iter().filter_map(|key| Some((near(key, 0.7)?, *key, None)));
        let hint = match elsewhere.chain(here).max_by(|a, b| a.0.total_cmp(&b.0)) {
            Some((_, key, Some(table))) => format!("\"{key}\" belongs in [{table}]."),
            Some((_, key, None)) => format!("Did you mean \"{key}\"?"),
            None => format!("Expected one of: {}.", known.join(", ")),
        };
        self.failure(at, &format!("unknown {what}: \"{word}\"")).hint(hint)
    }

    /// Builds the error for an invalid value. `why` describes the expected value, with an optional hint after a line
    /// feed.
    pub(super) fn bad(&self, at: usize, key: &str, why: &str) -> Failure {
        // serde's message begins with the value it found, and calls a table a "map".
        let why = why.rsplit_once(", expected ").map_or(why.into(), |(_, what)| format!("expected {what}"));
        let why = why.replace("expected a map", "expected a table of names and values");
        let mut lines = why.lines().map(str::to_owned);
        let why = lines.next().unwrap_or_default();
        self.failure(at, &format!("bad value for \"{key}\": {why}")).hint(lines.next())
    }

    /// Builds the error for invalid TOML. Names a duplicate key, and suggests quotes for a line that quotes would make
    /// valid.
    pub(super) fn no_toml(&self, error: &toml::de::Error) -> Failure {
        let span = error.span().unwrap_or_default();
        let mut message = error.message().to_lowercase();
        if message == "duplicate key"
            && let Some(key) = self.text.get(span.clone())
        {
            message = format!("{message}: \"{}\"", key.trim_matches(['"', '\'']));
        }
        let before = self.text.get(..span.start).unwrap_or_default();
        let line = self.text.get(before.rfind('\n').map_or(0, |end| end + 1)..).unwrap_or_default();
        let quoted = line.lines().next().and_then(quoted);
        self.failure(span.start, &message).hint(quoted.map(|line| format!("Write it in quotes: {line}")))
    }

    pub(super) fn failure(&self, at: usize, message: &str) -> Failure {
        let before = self.text.bytes().take(at).filter(|byte| *byte == b'\n').count();
        let line = (before + 1).min(self.text.lines().count().max(1));
        Failure::new(format!("{}:{line}: {}", self.path.display(), message.trim().replace('\n', ", ")))
    }
}

/// Returns the key of the value at `span`.
fn key_of<'t>(table: &'t DeTable<'_>, span: &Range<usize>) -> Option<&'t str> {
    table.iter().find_map(|(key, value)| {
        let here = (value.span() == *span).then_some(key.get_ref().as_ref());
        here.or_else(|| key_of(value.get_ref().as_table()?, span))
    })
}

/// Returns the line with its value in quotes if that makes it valid.
fn quoted(line: &str) -> Option<String> {
    let (key, value) = line.split_once('=')?;
    let value = value.split(" #").next().unwrap_or_default().trim();
    let is_bare = !value.starts_with(['[', '{', '"', '\'']) && value.contains(char::is_alphabetic);
    if !is_bare || DeTable::parse(line).is_ok() {
        return None;
    }
    let quote = if value.contains(['"', '\\']) { '\'' } else { '"' };
    let line = format!("{} = {quote}{value}{quote}", key.trim());
    DeTable::parse(&line).is_ok().then_some(line)
}
