//! A file being read: what it says, and where something in it is wrong.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use toml_edit::{Item, TableLike, Value};

use crate::failure::Failure;

/// A file being read: knows how to say where something is wrong.
pub(super) struct File<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
}

impl File<'_> {
    /// A setting's value as the server reads it; on and off may be written as true and false.
    pub(super) fn setting(&self, item: &Item, name: &str) -> Result<String, Failure> {
        match item.as_value() {
            Some(Value::String(text)) => Ok(text.value().clone()),
            Some(Value::Integer(number)) => Ok(number.value().to_string()),
            Some(Value::Float(number)) => Ok(number.value().to_string()),
            Some(Value::Boolean(value)) => Ok(if *value.value() { "on" } else { "off" }.to_owned()),
            _ => Err(self.bad(item, name, "expected a string, a number, true or false")),
        }
    }

    pub(super) fn text<'i>(&self, item: &'i Item, key: &str) -> Result<&'i str, Failure> {
        item.as_str().ok_or_else(|| self.bad(item, key, "expected a string"))
    }

    /// One string or several.
    pub(super) fn texts(&self, item: &Item, key: &str) -> Result<Vec<String>, Failure> {
        if let Some(text) = item.as_str() {
            return Ok(vec![text.to_owned()]);
        }
        let wrong = || self.bad(item, key, "expected a string or an array of strings");
        let array = item.as_array().ok_or_else(wrong)?;
        array.iter().map(|value| value.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
    }

    pub(super) fn parse<T: FromStr<Err = String>>(
        &self,
        item: &Item,
        key: &str,
        text: &str,
    ) -> Result<T, Failure> {
        text.parse().map_err(|why: String| self.bad(item, key, &why))
    }

    /// A time with its unit.
    pub(super) fn span(&self, item: &Item, key: &str) -> Result<Duration, Failure> {
        let span = gateway::parse_span(self.text(item, key)?);
        span.ok_or_else(|| self.bad(item, key, "expected a time such as \"5s\""))
    }

    /// Paths are meant from where the file is.
    pub(super) fn relative(&self, path: PathBuf) -> PathBuf {
        self.path.parent().map_or(path.clone(), |folder| folder.join(path))
    }

    pub(super) fn check_keys(
        &self,
        table: &dyn TableLike,
        name: &str,
        known: &[&str],
    ) -> Result<(), Failure> {
        for (key, _) in table.iter() {
            if !known.contains(&key) {
                let at = table.key(key).and_then(toml_edit::Key::span).map_or(0, |span| span.start);
                return Err(self.unknown(at, key, &format!("key in [{name}]"), known.iter().copied()));
            }
        }
        Ok(())
    }

    pub(super) fn unknown<'s>(
        &self,
        at: usize,
        word: &str,
        what: &str,
        known: impl Iterator<Item = &'s str>,
    ) -> Failure {
        let known: Vec<_> = known.collect();
        let nearest = known
            .iter()
            .max_by(|a, b| strsim::jaro_winkler(a, word).total_cmp(&strsim::jaro_winkler(b, word)));
        let nearest = nearest.filter(|nearest| strsim::jaro_winkler(nearest, word) > 0.7);
        let hint = nearest.map_or_else(
            || format!("Known are: {}.", known.join(", ")),
            |nearest| format!("Did you mean \"{nearest}\"?"),
        );
        self.failure(at, &format!("unknown {what}: \"{word}\"")).hint(hint)
    }

    pub(super) fn bad(&self, item: &Item, key: &str, why: &str) -> Failure {
        self.failure(item.span().map_or(0, |span| span.start), &format!("bad value for \"{key}\": {why}"))
    }

    pub(super) fn failure(&self, at: usize, message: &str) -> Failure {
        let line = self.text[..at.min(self.text.len())].matches('\n').count() + 1;
        Failure::new(format!("{}:{line}: {}", self.path.display(), message.trim().replace('\n', ", ")))
    }
}
