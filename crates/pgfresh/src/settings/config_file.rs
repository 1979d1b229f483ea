//! `pgfresh.toml`: where it is, and what it says.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::template::{ServerOptions, TemplateSpec};
use lease::Isolation;
use server::{Preset, VersionRequest};
use storage::PlaceRequest;
use toml_edit::{Document, TableLike};

use super::template;
use super::toml_file::File;
use crate::failure::Failure;

/// The file's name.
const NAME: &str = "pgfresh.toml";
/// The keys of `[postgres]`.
const POSTGRES: [&str; 4] = ["version", "settings", "preset", "place"];
/// The keys of `[server]`.
const SERVER: [&str; 1] = ["idle"];
/// The keys of `[database]`.
const DATABASE: [&str; 2] = ["isolation", "linger"];
/// The keys of `[cache]`.
const CACHE: [&str; 1] = ["size"];

/// What the file says.
#[derive(Debug, Default)]
pub(super) struct ConfigFile {
    /// Of the server.
    pub(super) server_options: ServerOptions,
    /// The templates, in the file's order; the unnamed one is first and called [`template::UNNAMED`].
    pub(super) templates: Vec<TemplateSpec>,
    pub(super) idle: Option<Duration>,
    pub(super) isolation: Option<Isolation>,
    pub(super) linger: Option<Duration>,
    /// Where the file is; empty if there is none.
    pub(super) folder: PathBuf,
}

/// Reads the file at `path`, or else the one here or above, if there is one.
pub(super) fn read(path: Option<&Path>) -> Result<ConfigFile, Failure> {
    let path = path.map(Path::to_owned).or_else(find_upwards);
    path.map_or_else(|| Ok(ConfigFile::default()), |path| read_file(&path))
}

fn find_upwards() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    here.ancestors().map(|folder| folder.join(NAME)).find(|path| path.is_file())
}

fn read_file(path: &Path) -> Result<ConfigFile, Failure> {
    let unreadable =
        |error: std::io::Error| Failure::new(format!("could not read \"{}\": {error}", path.display()));
    let text = fs::read_to_string(path).map_err(unreadable)?;
    let folder = path.canonicalize().map_err(unreadable)?.parent().map(Path::to_owned).unwrap_or_default();
    let file = File { path, text: &text };
    let document = Document::parse(text.as_str()).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        file.failure(at, &error.message().to_lowercase())
    })?;
    let mut config = ConfigFile { folder, ..ConfigFile::default() };
    for (name, item) in document.iter() {
        let at = document.key(name).and_then(toml_edit::Key::span).map_or(0, |span| span.start);
        let table =
            || item.as_table_like().ok_or_else(|| file.failure(at, &format!("\"{name}\" must be a table")));
        match name {
            "postgres" => read_postgres(&file, table()?, &mut config.server_options)?,
            "template" => config.templates = template::read(&file, table()?, &config.folder)?,
            "cache" => config.server_options.cache_size = read_cache(&file, table()?)?,
            "server" => config.idle = read_server(&file, table()?)?,
            "database" => (config.isolation, config.linger) = read_database(&file, table()?)?,
            _ => {
                let known = ["postgres", "template", "database", "server", "cache"];
                return Err(file.unknown(at, name, "table", known.into_iter()));
            }
        }
    }
    Ok(config)
}

fn read_cache(file: &File<'_>, table: &dyn TableLike) -> Result<Option<u64>, Failure> {
    file.check_keys(table, "cache", &CACHE)?;
    let Some(item) = table.get("size") else { return Ok(None) };
    let bytes = match item.as_integer() {
        Some(bytes) => u64::try_from(bytes).ok(),
        None => item.as_str().and_then(storage::parse_bytes),
    };
    bytes.map(Some).ok_or_else(|| file.bad(item, "size", "expected a size such as \"10GB\""))
}

fn read_server(file: &File<'_>, table: &dyn TableLike) -> Result<Option<Duration>, Failure> {
    file.check_keys(table, "server", &SERVER)?;
    let Some(item) = table.get("idle") else { return Ok(None) };
    file.span(item, "idle").map(Some)
}

fn read_database(
    file: &File<'_>,
    table: &dyn TableLike,
) -> Result<(Option<Isolation>, Option<Duration>), Failure> {
    file.check_keys(table, "database", &DATABASE)?;
    let isolation =
        table.get("isolation").map(|item| file.parse(item, "isolation", file.text(item, "isolation")?));
    let linger = table.get("linger").map(|item| file.span(item, "linger"));
    Ok((isolation.transpose()?, linger.transpose()?))
}

fn read_postgres(
    file: &File<'_>,
    table: &dyn TableLike,
    server_options: &mut ServerOptions,
) -> Result<(), Failure> {
    file.check_keys(table, "postgres", &POSTGRES)?;
    if let Some(item) = table.get("version") {
        let wanted = match item.as_integer() {
            Some(major) => file.parse(item, "version", &major.to_string())?,
            None => file.parse(item, "version", file.text(item, "version")?)?,
        };
        server_options.installation = match wanted {
            VersionRequest::Bin(path) => VersionRequest::Bin(file.relative(path)),
            other => other,
        };
    }
    if let Some(item) = table.get("place") {
        server_options.place = match file.parse(item, "place", file.text(item, "place")?)? {
            PlaceRequest::At(path) => PlaceRequest::At(file.relative(path)),
            other => other,
        };
    }
    if let Some(item) = table.get("preset") {
        server_options.preset = file.parse::<Preset>(item, "preset", file.text(item, "preset")?)?;
    }
    if let Some(item) = table.get("settings") {
        let settings = item.as_table_like();
        let settings =
            settings.ok_or_else(|| file.bad(item, "settings", "expected a table of names and values"))?;
        for (name, item) in settings.iter() {
            server_options.settings.push((name.to_owned(), file.setting(item, name)?));
        }
    }
    Ok(())
}
