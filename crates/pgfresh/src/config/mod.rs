//! What is wished, from the command line, the environment and `pgfresh.toml`, in this order.

mod file;
mod template;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::template::{ServerOptions, TemplateSpec};
use lease::Isolation;
use server::{Preset, VersionRequest};
use storage::PlaceRequest;
use toml_edit::{Document, TableLike};

use self::file::File;
pub(crate) use self::template::find;
use crate::cli::Options;
use crate::failure::Failure;

/// The file's name.
const NAME: &str = "pgfresh.toml";
/// The keys of `[postgres]`.
const POSTGRES: [&str; 4] = ["version", "settings", "preset", "place"];
/// The keys of `[server]`.
const SERVER: [&str; 1] = ["idle"];
/// How long the background server outlives its last client.
const IDLE: Duration = Duration::from_mins(5);
/// The keys of `[database]`.
const DATABASE: [&str; 2] = ["isolation", "linger"];
/// How long a database outlives its last session.
const LINGER: Duration = Duration::from_secs(5);
/// The keys of `[cache]`.
const CACHE: [&str; 1] = ["size"];

/// All that is wished, before a template is chosen.
#[derive(Debug, Default)]
pub(crate) struct Config {
    /// Of the server.
    pub(crate) server_options: ServerOptions,
    /// The templates that the file describes, in its order; the unnamed one is first and called [`template::UNNAMED`].
    pub(crate) specs: Vec<TemplateSpec>,
    /// How long the background server outlives its last client.
    idle: Option<Duration>,
    /// How leases are isolated that do not say.
    isolation: Option<Isolation>,
    /// How long a database outlives its last session.
    linger: Option<Duration>,
    /// Where the file is, or else where we are: the project.
    pub(crate) folder: PathBuf,
}

/// Puts together what is wished of the server, and which templates there are.
pub(crate) fn read(options: &Options) -> Result<Config, Failure> {
    let path = match &options.config {
        Some(path) => Some(path.clone()),
        None => find_upwards(),
    };
    let mut config = path.map_or_else(|| Ok(Config::default()), |path| read_file(&path))?;
    if config.folder.as_os_str().is_empty() {
        config.folder = here()?;
    }
    let server_options = &mut config.server_options;
    if let Some(wanted) = &options.postgres {
        server_options.installation = wanted.clone();
    }
    if let Some(place) = &options.place {
        server_options.place = place.clone();
    }
    if let Some(preset) = options.preset {
        server_options.preset = preset;
    }
    server_options.cache_size = options.cache_size.or(server_options.cache_size);
    let environment = std::env::var("PGFRESH_SET").unwrap_or_default();
    let pairs = environment.split(';').filter(|pair| !pair.trim().is_empty());
    for pair in pairs.chain(options.set.iter().map(String::as_str)) {
        let Some((name, value)) = pair.split_once('=') else {
            let failure = Failure::new(format!("cannot read setting \"{pair}\": it is not NAME=VALUE"));
            return Err(failure.hint("Write --set work_mem=64MB.".to_owned()));
        };
        server_options.settings.push((name.trim().to_owned(), value.trim().to_owned()));
    }
    Ok(config)
}

/// The same, with the template that is chosen among them.
pub(crate) fn server_options(options: &Options) -> Result<ServerOptions, Failure> {
    let config = read(options)?;
    let template = template::choose(&config, options)?;
    Ok(ServerOptions { template, ..config.server_options })
}

impl Config {
    /// How long the background server outlives its last client.
    pub(crate) fn idle(&self, options: &Options) -> Duration {
        options.idle.or(self.idle).unwrap_or(IDLE)
    }

    /// How leases are isolated that do not say, and how long a database outlives its last session.
    pub(crate) fn leases(&self, options: &Options) -> (Isolation, Duration) {
        let isolation = options.isolation.or(self.isolation).unwrap_or_default();
        (isolation, options.linger.or(self.linger).unwrap_or(LINGER))
    }
}

fn here() -> Result<PathBuf, Failure> {
    let here = std::env::current_dir().and_then(|here| here.canonicalize());
    here.map_err(|error| Failure::new(format!("could not find the working directory: {error}")))
}

fn find_upwards() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    here.ancestors().map(|folder| folder.join(NAME)).find(|path| path.is_file())
}

fn read_file(path: &Path) -> Result<Config, Failure> {
    let unreadable =
        |error: std::io::Error| Failure::new(format!("could not read \"{}\": {error}", path.display()));
    let text = fs::read_to_string(path).map_err(unreadable)?;
    let folder = path.canonicalize().map_err(unreadable)?.parent().map(Path::to_owned).unwrap_or_default();
    let file = File { path, text: &text };
    let document = Document::parse(text.as_str()).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        file.failure(at, &error.message().to_lowercase())
    })?;
    let mut config = Config { folder, ..Config::default() };
    for (name, item) in document.iter() {
        let at = document.key(name).and_then(toml_edit::Key::span).map_or(0, |span| span.start);
        let table =
            || item.as_table_like().ok_or_else(|| file.failure(at, &format!("\"{name}\" must be a table")));
        match name {
            "postgres" => read_postgres(&file, table()?, &mut config.server_options)?,
            "template" => config.specs = template::read(&file, table()?, &config.folder)?,
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
