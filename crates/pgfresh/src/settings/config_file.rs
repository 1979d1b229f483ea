//! Finds and reads the configuration file `pgfresh.toml`.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use ::template::TemplateSpec;
use server::VersionRequest;
use storage::PlaceRequest;
use toml::de::{DeTable, DeValue};

use super::migrate::{self, MigrateSettings};
use super::schema::{
    BudgetTable, CacheTable, DatabaseTable, DatabasesTable, PlansTable, PostgresTable, ServerTable, tables,
};
use super::template;
use super::toml_file::File;
use super::values::{Parsed, Version};
use crate::bounded_file;
use crate::failure::Failure;

/// Maximum size of the configuration file, in bytes.
const MAX_BYTES: u64 = 16 << 20;

/// Contents of the configuration file, whose paths are relative to the file's folder.
#[derive(Debug, Default)]
pub(super) struct ConfigFile {
    pub(super) postgres: PostgresTable,
    /// Templates in file order, except that the unnamed template comes first. Its name is [`template::UNNAMED`].
    pub(super) templates: Vec<TemplateSpec>,
    pub(super) database: DatabaseTable,
    pub(super) databases: DatabasesTable,
    pub(super) budget: BudgetTable,
    pub(super) server: ServerTable,
    pub(super) cache: CacheTable,
    pub(super) plans: PlansTable,
    pub(super) migrate: MigrateSettings,
    /// The file's folder. Empty if there is no configuration file.
    pub(super) folder: PathBuf,
}

/// Reads the configuration file at `path`. Without `path`, reads the nearest one in the working directory or a folder
/// above it, if any.
pub(super) fn read(path: Option<&Path>) -> Result<ConfigFile, Failure> {
    let here = std::env::current_dir().unwrap_or_default();
    // A directory or a dangling link with this name is probably a mistake, so don't skip it: reading it below must
    // cause an error.
    let is_there = |path: &PathBuf| path.symlink_metadata().is_ok();
    let upwards = || here.ancestors().map(|folder| folder.join("pgfresh.toml")).find(is_there);
    let Some(path) = path.map(Path::to_owned).or_else(upwards) else { return Ok(ConfigFile::default()) };
    let unreadable =
        |error: io::Error| Failure::new(format!("could not read \"{}\": {error}", path.display()));
    // Reading a pipe without a writer would never end.
    if fs::metadata(&path).map_err(unreadable)?.file_type().is_fifo() {
        return Err(unreadable(io::Error::other("it is a pipe")));
    }
    let text = bounded_file::read_text(&path, MAX_BYTES).map_err(unreadable)?;
    let folder = path.canonicalize().map_err(unreadable)?.parent().map(Path::to_owned).unwrap_or_default();
    parse(&File { path: &path, text: &text }, folder)
}

/// Checks `text`, the contents of a configuration file that doesn't exist yet at `path`.
///
/// # Errors
/// Returns the error that a command would report if the file had these contents.
pub(crate) fn check(text: &str, path: &Path) -> Result<(), Failure> {
    let folder = path.parent().map(Path::to_owned).unwrap_or_default();
    parse(&File { path, text }, folder).map(|_| ())
}

fn parse(file: &File<'_>, folder: PathBuf) -> Result<ConfigFile, Failure> {
    let document = DeTable::parse(file.text).map_err(|error| file.no_toml(&error))?;
    let mut config = ConfigFile { folder, ..ConfigFile::default() };
    for (key, value) in document.into_inner() {
        let (name, at, value) = (key.get_ref().as_ref(), key.span().start, value.into_inner());
        let known = tables().map(|(table, _)| table);
        if !known.contains(&name) {
            let what = if value.is_table() { "table" } else { "key outside of all tables" };
            return Err(file.unknown(at, name, what, &known, &tables()));
        }
        let DeValue::Table(table) = value else {
            return Err(file.failure(at, &format!("\"{name}\" must be a table")));
        };
        match name {
            "postgres" => config.postgres = file.read(name, &table)?,
            "template" => config.templates = template::read(file, table, at, &config.folder)?,
            "database" => config.database = file.read(name, &table)?,
            "databases" => config.databases = file.read(name, &table)?,
            "budget" => config.budget = file.read(name, &table)?,
            "server" => config.server = file.read(name, &table)?,
            "plans" => config.plans = file.read(name, &table)?,
            "migrate" => config.migrate = migrate::read(file, table)?,
            _ => config.cache = file.read(name, &table)?,
        }
    }
    let here = file.path.parent().unwrap_or(Path::new(""));
    if let Some(Version(VersionRequest::Bin(path))) = &mut config.postgres.version {
        *path = below(here, path);
    }
    if let Some(Parsed(PlaceRequest::At(path))) = &mut config.postgres.place {
        *path = below(here, path);
    }
    for path in [&mut config.plans.statistics, &mut config.plans.baseline].into_iter().flatten() {
        *path = below(&config.folder, Path::new(path.as_str())).to_string_lossy().into_owned();
    }
    Ok(config)
}

/// Resolves a path from the file, removing the "./" that distinguishes a path from a keyword.
fn below(here: &Path, path: &Path) -> PathBuf {
    here.join(path).components().collect()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    /// A configuration file with all keys.
    const WHOLE: &str = r#"# All of it.
[postgres]
version = "15"
preset = "durable"
place = "../data"
settings = { work_mem = "64MB", max_connections = 20, jit = true, "a.b" = 0.5 }

[template]
setup = "make migrate"
inputs = ["migrations/**", 'Makefile']
env = "STAGE"
steps = "append-only"
replicas = 1

[template.seeded]
from = "app"
sql = '''
seed.sql'''

[template.copied]
dump = "dump"

[database]
isolation = "rollback"
linger = "2s"

[databases]
names = ["test_*", "app"]
except = "test_none"

[budget]
statements = 50
n_plus_one = 0
time = "200ms"
plan_cost = 100000
no_seq_scan_over = "1GB"

[server]
idle = "10m"

[cache]
size = "1.5GB"
keys = ["RWQckY+rYCHgBf+cnBSdpzrjFIT8C78UlFKQgLrvPpXVWp+fAnCNohUH"]
remote = "s3://bucket/prefix"
push = "main"

[plans]
statistics = "db/production.json"
baseline = "db/plans.json"

[migrate]
access_exclusive = "1s"
share = "10s"
lock_timeout = "5s"
rewrites = 0
broken_statements = 2
data = "make rows"

[[migrate.allow]]
statement = "DROP TABLE *"
reason = "nothing reads it"

[[migrate.allow]]
migration = "0042_*"
reason = "at night"
"#;

    /// Snippets that a user might insert into the file by mistake.
    const PIECES: [&str; 42] = [
        "[",
        "]",
        "[[",
        "]]",
        "{",
        "}",
        "=",
        ",",
        ".",
        "#",
        "\"",
        "'",
        "'''",
        "\\",
        "\n",
        "\r\n",
        "\r",
        "\0",
        "é",
        "-",
        "1",
        "99999999999999999999",
        "1e9",
        "inf",
        "true",
        "1979-05-27",
        "[]",
        "{}",
        "\"x\"",
        "version",
        "[cache]\n",
        "[template]\n",
        "[[template.seeded]]\n",
        "[[migrate.allow]]\n",
        "[migrate.allow]\n",
        "[template.a]\nfrom = \"seeded\"\n",
        "from = \"copied\"\n",
        "size = 5\n",
        "postgres.settings.x = []\n",
        "settings = 3\n",
        "linger = {}\n",
        "\u{feff}",
    ];

    fn parse_text(text: &str) -> Result<ConfigFile, Failure> {
        parse(&File { path: Path::new("dir/pgfresh.toml"), text }, PathBuf::from("dir"))
    }

    #[test]
    fn complete_config_file_is_read() {
        let config = parse_text(WHOLE).unwrap();
        assert_eq!(
            config.postgres.version.as_ref().map(|version| &version.0),
            Some(&VersionRequest::Major(15))
        );
        assert_eq!(config.postgres.preset.as_ref().map(|preset| preset.0), Some(server::Preset::Durable));
        let place = config.postgres.place.as_ref().map(|place| &place.0);
        assert_eq!(place, Some(&PlaceRequest::At("dir/../data".into())));
        let settings = settings_of(config.postgres);
        assert_eq!(settings, ["work_mem=64MB", "max_connections=20", "jit=on", "a.b=0.5"]);
        let templates: Vec<_> = config.templates.iter().map(|template| template.name.as_str()).collect();
        assert_eq!(templates, ["app", "seeded", "copied"]);
        let [app, seeded, copied] = &config.templates[..] else { panic!("there are three") };
        assert_eq!(app.setup.as_deref(), Some("make migrate"));
        assert_eq!(
            (&app.inputs[..], &app.env[..]),
            (&["migrations/**".into(), "Makefile".into()][..], &["STAGE".into()][..])
        );
        assert_eq!((app.steps, seeded.steps), (::template::Steps::AppendOnly, ::template::Steps::Any));
        assert_eq!((app.has_replica, seeded.has_replica), (true, false));
        assert_eq!((seeded.from.as_deref(), &seeded.sql[..]), (Some(app), &["seed.sql".into()][..]));
        assert_eq!(copied.dump.as_deref(), Some("dump"));
        assert_eq!(config.database.isolation.map(|isolation| isolation.0), Some(lease::Isolation::Rollback));
        assert_eq!(config.database.linger.map(|linger| linger.0.as_secs()), Some(2));
        assert_eq!(config.databases.names.0, ["test_*", "app"]);
        assert_eq!(config.databases.except.0, ["test_none"]);
        let counts =
            [config.budget.statements, config.budget.n_plus_one].map(|count| count.map(|count| count.0));
        assert_eq!(counts, [Some(50), Some(0)]);
        assert_eq!(config.budget.time.map(|time| time.0.as_millis()), Some(200));
        assert_eq!(config.budget.plan_cost.map(|cost| cost.0), Some(100_000));
        assert_eq!(config.budget.no_seq_scan_over.map(|size| size.0), Some(1_000_000_000));
        assert_eq!(config.server.idle.map(|idle| idle.0.as_secs()), Some(600));
        assert_eq!(config.cache.size.map(|size| size.0), Some(1_500_000_000));
        let keys: Vec<_> = config.cache.keys.0.iter().map(ToString::to_string).collect();
        assert_eq!(config.cache.remote.unwrap().0.to_string(), "s3://bucket/prefix");
        assert_eq!(config.cache.push, Some(super::super::remote::PushPolicy::Branch("main".to_owned())));
        let plans = [&config.plans.statistics, &config.plans.baseline].map(|path| path.as_deref());
        assert_eq!(plans, [Some("dir/db/production.json"), Some("dir/db/plans.json")]);
        assert_eq!(keys, ["RWQckY+rYCHgBf+cnBSdpzrjFIT8C78UlFKQgLrvPpXVWp+fAnCNohUH"]);
    }

    #[test]
    fn limits_and_exceptions_of_migrations_are_read() {
        let MigrateSettings { budget, exceptions, data } = parse_text(WHOLE).unwrap().migrate;
        let seconds = [budget.access_exclusive, budget.share, budget.lock_timeout]
            .map(|time| time.map(|time| time.as_secs()));
        assert_eq!(seconds, [Some(1), Some(10), Some(5)]);
        assert_eq!((budget.rewrites, budget.broken_statements), (Some(0), Some(2)));
        assert_eq!(data.as_deref(), Some("make rows"));
        let exceptions: Vec<_> =
            exceptions.iter().map(|exception| (exception.to_string(), exception.reason.as_str())).collect();
        let expected =
            [("statement = \"DROP TABLE *\"", "nothing reads it"), ("migration = \"0042_*\"", "at night")];
        assert_eq!(exceptions, expected.map(|(pattern, reason)| (pattern.to_owned(), reason)));
    }

    #[test]
    fn mistaken_exceptions_of_migrations_are_errors() {
        for (text, error) in [
            (
                "[[migrate.allow]]\nstatement = \"a\"\n",
                "dir/pgfresh.toml:1: [[migrate.allow]] needs a reason",
            ),
            (
                "[[migrate.allow]]\nreason = \"a\"\n",
                "dir/pgfresh.toml:1: [[migrate.allow]] needs statement or migration",
            ),
            (
                "[migrate.allow]\nreason = \"a\"\n",
                "dir/pgfresh.toml:1: bad value for \"allow\": expected tables",
            ),
            ("[migrate]\nallow = [\"a\"]\n", "dir/pgfresh.toml:2: bad value for \"allow\": expected tables"),
            (
                "[[migrate.allow]]\nreason = \" \"\n",
                "dir/pgfresh.toml:2: bad value for \"reason\": it is empty",
            ),
            (
                "[[migrate.allow]]\nwhy = \"a\"\n",
                "dir/pgfresh.toml:2: unknown key in [migrate.allow]: \"why\"",
            ),
            (
                "[migrate]\nacces_exclusive = \"1s\"\n",
                "dir/pgfresh.toml:2: unknown key in [migrate]: \"acces_exclusive\"",
            ),
            (
                "[migrate]\nshare = 5\n",
                "dir/pgfresh.toml:2: bad value for \"share\": expected a time such as \"5s\"",
            ),
        ] {
            let failure = parse_text(text).unwrap_err().to_string();
            let first = failure.lines().next().unwrap_or_default();
            assert_eq!(first, format!("pgfresh: {error}"), "{text}");
        }
    }

    fn settings_of(postgres: PostgresTable) -> Vec<String> {
        let settings = postgres.settings.0.into_iter();
        settings.map(|(name, value)| format!("{name}={}", value.into_text())).collect()
    }

    #[test]
    fn last_setting_wins_among_names_differing_in_case() {
        for (first, last) in [("work_mem", "Work_Mem"), ("WORK_MEM", "work_mem")] {
            let text = format!("[postgres.settings]\n{first} = \"1MB\"\njit = true\n{last} = \"2MB\"\n");
            let settings = settings_of(parse_text(&text).unwrap().postgres);
            assert_eq!(settings, [format!("{first}=1MB"), "jit=on".to_owned(), format!("{last}=2MB")]);
            let mut effective = server::Settings::default();
            for pair in &settings {
                let (name, value) = pair.split_once('=').unwrap();
                effective.set(name, value).unwrap();
            }
            assert!(effective.iter().any(|setting| setting == ("work_mem", "2MB")), "{effective:?}");
        }
    }

    proptest! {
        #[test]
        fn mistaken_config_is_read_or_error_names_line(
            mistakes in vec((0..WHOLE.len(), 0..30_usize, select(&PIECES[..]), any::<bool>()), 1..4),
        ) {
            let mut text = WHOLE.to_owned();
            for (at, length, piece, whole_lines) in mistakes {
                let bound = |at: usize| (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
                let line = |at: usize| text[..at].rfind('\n').map_or(0, |end| end + 1);
                let (start, end) = (bound(at), bound(at + length));
                let range = if whole_lines { line(start)..line(end) } else { start..end };
                text.replace_range(range, piece);
            }
            if let Err(failure) = parse_text(&text) {
                let said = failure.to_string();
                let primary = said.lines().next().unwrap_or_default();
                let rest = primary.strip_prefix("pgfresh: dir/pgfresh.toml:");
                let (line, what) = rest.and_then(|rest| rest.split_once(": ")).expect(primary);
                let line: usize = line.parse().expect(primary);
                prop_assert!((1..=text.lines().count().max(1)).contains(&line), "{said}\n{text}");
                prop_assert!(!what.trim().is_empty(), "{said}\n{text}");
                prop_assert!(said.lines().skip(1).all(|line| line.starts_with("HINT:  ")), "{said}\n{text}");
            }
        }
    }
}
