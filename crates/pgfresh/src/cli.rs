//! The words of the command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use server::{Preset, Wanted};
use storage::Wish;

/// Fresh PostgreSQL for every test.
#[derive(Debug, Parser)]
#[command(name = "pgfresh", version, max_term_width = 100, propagate_version = true)]
#[command(after_help = "Example: pgfresh run -- pytest\n\n\
    Settings come from the command line, then PGFRESH_* variables, then pgfresh.toml, found upwards from here.")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) options: Options,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command understands.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct Options {
    /// PostgreSQL's major version (13 to 18), or the directory of its binaries [default: the one on PATH, else the newest]
    #[arg(long, global = true, value_name = "MAJOR|PATH", env = "PGFRESH_POSTGRES", hide_env_values = true)]
    pub(crate) postgres: Option<Wanted>,
    /// Where the data live: auto, ram, disk or a path [default: auto, RAM where it truly fits]
    #[arg(long, global = true, value_name = "PLACE", env = "PGFRESH_PLACE", hide_env_values = true)]
    pub(crate) place: Option<Wish>,
    /// Settings for a purpose: fast (nothing is flushed) or durable [default: fast]
    #[arg(long, global = true, value_name = "PRESET", env = "PGFRESH_PRESET", hide_env_values = true)]
    pub(crate) preset: Option<Preset>,
    /// A setting of the server, over preset and file; may be repeated (in PGFRESH_SET: separated by ";")
    #[arg(long, global = true, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,
    /// Where templates are kept [default: the user's cache directory]
    #[arg(long, global = true, value_name = "PATH", env = "PGFRESH_CACHE", hide_env_values = true)]
    pub(crate) cache: Option<PathBuf>,
    /// The configuration file [default: pgfresh.toml, here or above]
    #[arg(long, global = true, value_name = "FILE", env = "PGFRESH_CONFIG", hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,
    /// Say what is done, where, why, and how long it takes
    #[arg(short, long, global = true, help_heading = "Output")]
    pub(crate) verbose: bool,
    /// Say nothing but errors
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = "Output")]
    pub(crate) quiet: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command with a server of its own, and leave nothing behind
    Run(Run),
    /// The same server in the foreground, until standard input closes or a signal comes
    Serve(Serve),
    /// Open psql in a fresh database
    Psql(Psql),
    /// Show the PostgreSQL installations that are there
    #[command(subcommand)]
    Postgres(Postgres),
    /// Remove what dead owners left
    Sweep(Sweep),
    /// Measure pgfresh on this machine beside the same thing by hand
    #[command(subcommand)]
    Bench(Bench),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pgfresh run -- pytest -q\n  \
    pgfresh run --env 'SPRING_DATASOURCE_URL={url}' -- ./mvnw test\n\n\
    The command sees DATABASE_URL, PGHOST, PGPORT, PGUSER and PGDATABASE. Its exit code is ours; 128+N if signal N\n\
    ended it, 125 if pgfresh failed, 126 if the command cannot be run, 127 if it is not there.")]
pub(crate) struct Run {
    /// One more variable for the command; {url}, {host}, {port}, {user} and {database} are filled in; may be repeated
    #[arg(long, value_name = "NAME=TEMPLATE")]
    pub(crate) env: Vec<String>,
    /// If the command fails, keep data and log, and say where they are
    #[arg(long)]
    pub(crate) keep: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: pgfresh serve --json\n\n\
    Whoever started it keeps its standard input open; when that ends, by whatever accident, so does the server.")]
pub(crate) struct Serve {
    /// Say where the server is as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pgfresh psql\n  pgfresh psql scratch -- -c 'SELECT version()'")]
pub(crate) struct Psql {
    /// The database, made for the purpose [default: postgres]
    pub(crate) name: Option<String>,
    /// Arguments for psql
    #[arg(last = true, value_name = "ARGUMENT")]
    pub(crate) arguments: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Postgres {
    /// All installations that work
    #[command(after_help = "Example: pgfresh postgres list --json")]
    List {
        /// As one JSON array
        #[arg(long)]
        json: bool,
    },
    /// The directory of the binaries that would be used
    #[command(after_help = "Example: $(pgfresh postgres path --postgres 17)/pg_dump --version")]
    Path,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: pgfresh sweep --kept\n\n\
    Every start sweeps as well; nothing that is in use is touched.")]
pub(crate) struct Sweep {
    /// What \"run --keep\" has kept, too
    #[arg(long)]
    pub(crate) kept: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Time from nothing to the first answer and back, phase by phase, beside its floor and the same thing by hand
    #[command(after_help = "Example: pgfresh bench start --rounds 40")]
    Start {
        /// How often each contender runs
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(3..=10_000))]
        rounds: u32,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

impl Command {
    /// The exit code of a failure of our own: `run` must not be taken for its command.
    pub(crate) fn exit_code_on_failure(&self) -> u8 {
        if matches!(self, Self::Run(_)) { 125 } else { 1 }
    }
}
