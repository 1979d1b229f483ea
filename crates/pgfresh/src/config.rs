//! What is wished, from the command line, the environment and `pgfresh.toml`, in this order.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use server::{Preset, Wanted};
use storage::Wish;
use template::Wishes;
use toml_edit::{Document, Item, TableLike, Value};

use crate::cli::Options;
use crate::failure::Failure;

/// The file's name.
const NAME: &str = "pgfresh.toml";
/// The tables that it may have, and their keys.
const TABLES: [(&str, &[&str]); 1] = [("postgres", &["version", "settings", "preset", "place"])];

/// Puts together what is wished of the server.
pub(crate) fn wishes(options: &Options) -> Result<Wishes, Failure> {
    let path = match &options.config {
        Some(path) => Some(path.clone()),
        None => find_upwards(),
    };
    let mut wishes = path.map_or_else(|| Ok(Wishes::default()), |path| read(&path))?;
    if let Some(wanted) = &options.postgres {
        wishes.installation = wanted.clone();
    }
    if let Some(place) = &options.place {
        wishes.place = place.clone();
    }
    if let Some(preset) = options.preset {
        wishes.preset = preset;
    }
    let environment = std::env::var("PGFRESH_SET").unwrap_or_default();
    let pairs = environment.split(';').filter(|pair| !pair.trim().is_empty());
    for pair in pairs.chain(options.set.iter().map(String::as_str)) {
        let Some((name, value)) = pair.split_once('=') else {
            let failure = Failure::new(format!("cannot read setting \"{pair}\": it is not NAME=VALUE"));
            return Err(failure.hint("Write --set work_mem=64MB.".to_owned()));
        };
        wishes.settings.push((name.trim().to_owned(), value.trim().to_owned()));
    }
    Ok(wishes)
}

fn find_upwards() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    here.ancestors().map(|folder| folder.join(NAME)).find(|path| path.is_file())
}

fn read(path: &Path) -> Result<Wishes, Failure> {
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::new(format!("could not read \"{}\": {error}", path.display())))?;
    let file = File { path, text: &text };
    let document = Document::parse(text.as_str()).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        file.failure(at, &error.message().to_lowercase())
    })?;
    let mut wishes = Wishes::default();
    for (name, item) in document.iter() {
        let at = document.key(name).and_then(toml_edit::Key::span).map_or(0, |span| span.start);
        let Some((_, keys)) = TABLES.iter().find(|(table, _)| *table == name) else {
            return Err(file.unknown(at, name, "table", TABLES.iter().map(|(table, _)| *table)));
        };
        let table =
            item.as_table_like().ok_or_else(|| file.failure(at, &format!("\"{name}\" must be a table")))?;
        file.check_keys(table, name, keys)?;
        file.read_postgres(table, &mut wishes)?;
    }
    Ok(wishes)
}

/// A file being read: knows how to say where something is wrong.
struct File<'a> {
    path: &'a Path,
    text: &'a str,
}

impl File<'_> {
    fn read_postgres(&self, table: &dyn TableLike, wishes: &mut Wishes) -> Result<(), Failure> {
        if let Some(item) = table.get("version") {
            let wanted = match item.as_integer() {
                Some(major) => self.parse(item, "version", &major.to_string())?,
                None => self.parse(item, "version", self.text(item, "version")?)?,
            };
            wishes.installation = match wanted {
                Wanted::Bin(path) => Wanted::Bin(self.relative(path)),
                other => other,
            };
        }
        if let Some(item) = table.get("place") {
            wishes.place = match self.parse(item, "place", self.text(item, "place")?)? {
                Wish::At(path) => Wish::At(self.relative(path)),
                other => other,
            };
        }
        if let Some(item) = table.get("preset") {
            wishes.preset = self.parse::<Preset>(item, "preset", self.text(item, "preset")?)?;
        }
        if let Some(item) = table.get("settings") {
            let settings = item.as_table_like();
            let settings =
                settings.ok_or_else(|| self.bad(item, "settings", "expected a table of names and values"))?;
            for (name, item) in settings.iter() {
                wishes.settings.push((name.to_owned(), self.setting(item, name)?));
            }
        }
        Ok(())
    }

    /// A setting's value as the server reads it; on and off may be written as true and false.
    fn setting(&self, item: &Item, name: &str) -> Result<String, Failure> {
        match item.as_value() {
            Some(Value::String(text)) => Ok(text.value().clone()),
            Some(Value::Integer(number)) => Ok(number.value().to_string()),
            Some(Value::Float(number)) => Ok(number.value().to_string()),
            Some(Value::Boolean(value)) => Ok(if *value.value() { "on" } else { "off" }.to_owned()),
            _ => Err(self.bad(item, name, "expected a string, a number, true or false")),
        }
    }

    fn text<'i>(&self, item: &'i Item, key: &str) -> Result<&'i str, Failure> {
        item.as_str().ok_or_else(|| self.bad(item, key, "expected a string"))
    }

    fn parse<T: FromStr<Err = String>>(&self, item: &Item, key: &str, text: &str) -> Result<T, Failure> {
        text.parse().map_err(|why: String| self.bad(item, key, &why))
    }

    /// Paths are meant from where the file is.
    fn relative(&self, path: PathBuf) -> PathBuf {
        self.path.parent().map_or(path.clone(), |folder| folder.join(path))
    }

    fn check_keys(&self, table: &dyn TableLike, name: &str, known: &[&'static str]) -> Result<(), Failure> {
        for (key, _) in table.iter() {
            if !known.contains(&key) {
                let at = table.key(key).and_then(toml_edit::Key::span).map_or(0, |span| span.start);
                return Err(self.unknown(at, key, &format!("key in [{name}]"), known.iter().copied()));
            }
        }
        Ok(())
    }

    fn unknown(
        &self,
        at: usize,
        word: &str,
        what: &str,
        known: impl Iterator<Item = &'static str>,
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

    fn bad(&self, item: &Item, key: &str, why: &str) -> Failure {
        self.failure(item.span().map_or(0, |span| span.start), &format!("bad value for \"{key}\": {why}"))
    }

    fn failure(&self, at: usize, message: &str) -> Failure {
        let line = self.text[..at.min(self.text.len())].matches('\n').count() + 1;
        Failure::new(format!("{}:{line}: {}", self.path.display(), message.trim().replace('\n', ", ")))
    }
}
