//! Defines the arguments of `pgfresh template`.
// clap prints these doc comments as help, so they must be plain text.
#![allow(clippy::doc_markdown, clippy::doc_link_with_quotes)]

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::options::{
    BuildOptions, FingerprintOptions, InstallationOptions, Options, ProjectOptions, PullOptions,
    RemoteCacheOptions, VerifyOptions,
};
use super::values::age;

#[derive(Debug, Subcommand)]
pub(crate) enum Template {
    /// Build a template, unless the cache has it
    Build(Build),
    /// List the cached templates, most recently used first
    List(List),
    /// Show the inputs of a template, and their changes since it was built
    Show(Show),
    /// Remove templates that are not in use from the cache
    Rm(Remove),
    /// Write the schema of a live database to an SQL file, or print its statistics; that server is not changed
    Import(Import),
    /// Copy a template to the remote template cache, or to a directory, for other machines
    Push(Push),
    /// Add the template from the remote template cache, or those of a directory, to the cache
    Pull(Pull),
    /// Remove old templates from the remote template cache, and data that no template there needs
    Gc(Collect),
    /// Generate a key pair for signing templates
    Keygen(Keygen),
    /// Sign the templates of a directory, written by "push"
    Sign(Sign),
    /// Check the signatures and all files of the templates in a directory
    Verify(Verify),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pgfresh template build\n  \
    pgfresh template build --setup 'alembic upgrade head' --inputs 'migrations/**'")]
pub(crate) struct Build {
    /// Template of pgfresh.toml [default: the template that "run" uses]
    pub(crate) name: Option<String>,
    /// Keep data and log if the setup fails
    #[arg(long)]
    pub(crate) keep: bool,
    /// Build the template in full, not incrementally
    #[arg(long)]
    pub(crate) full: bool,
    #[command(flatten)]
    options: BuildOptions,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: pgfresh template list --json")]
pub(crate) struct List {
    /// Print one JSON array
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    options: RemoteCacheOptions,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: pgfresh template show app")]
pub(crate) struct Show {
    /// Template of pgfresh.toml, or the first digits of a fingerprint [default: as for "run"]
    pub(crate) name: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    options: FingerprintOptions,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pgfresh template rm app\n  pgfresh template rm --all")]
pub(crate) struct Remove {
    /// Templates of this project, or the first digits (at least four) of fingerprints
    #[arg(required_unless_present = "all", conflicts_with = "all", value_name = "NAME|FINGERPRINT")]
    pub(crate) names: Vec<String>,
    /// Remove all templates of all projects, and the base images
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    options: ProjectOptions,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pgfresh template import postgresql://me@db.example/shop schema.sql\n  \
    pgfresh template import --statistics postgresql://me@db.example/shop > s.json")]
pub(crate) struct Import {
    /// URL of the database, as for psql, without the password: put that in PGPASSWORD or ~/.pgpass
    #[arg(required_unless_present = "statistics")]
    pub(crate) url: Option<String>,
    /// File to write
    #[arg(required_unless_present = "statistics")]
    pub(crate) file: Option<PathBuf>,
    /// Instead, print the planner's statistics of a database or a file, as JSON
    ///
    /// A file may come from this command, or from "pg_dump --statistics-only" of PostgreSQL 18.
    #[arg(long, value_name = "URL|FILE", conflicts_with_all = ["url", "file"])]
    pub(crate) statistics: Option<String>,
    /// Redact these columns, too: [[SCHEMA.]TABLE.]COLUMN with * and ?; or all; or none
    ///
    /// pgfresh redacts columns whose names suggest personal data, such as email, phone, client_ip and password;
    /// "none" switches that off. Texts become tokens in the same order, and pgfresh leaves out other values.
    #[arg(long, value_name = "COLUMN", value_delimiter = ',', requires = "statistics", conflicts_with_all = ["url", "file"])]
    pub(crate) redact: Vec<String>,
    #[command(flatten)]
    options: InstallationOptions,
}

#[derive(Debug, Args)]
#[command(
    after_help = "If PGFRESH_SIGNING_KEY is set, its key signs the template. A remote requires a signature.\n\n\
    Examples:\n  pgfresh template push\n  pgfresh template push --key templates.key /mnt/templates"
)]
pub(crate) struct Push {
    /// Directory, or URL of a remote [default: the remote of pgfresh.toml]
    #[arg(value_name = "FOLDER|URL")]
    pub(crate) target: Option<String>,
    /// Sign with the secret key in this file
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    #[command(flatten)]
    options: BuildOptions,
}

#[derive(Debug, Args)]
#[command(
    after_help = "If public keys are configured (keys in [cache]), one of them must have signed each template.\n\n\
    Examples:\n  pgfresh template pull\n  pgfresh template pull .cache/pgfresh"
)]
pub(crate) struct Pull {
    /// Directory, or URL of a remote [default: the remote of pgfresh.toml]
    #[arg(value_name = "FOLDER|URL")]
    pub(crate) target: Option<String>,
    /// Accept unsigned templates from a directory, even if keys are configured
    #[arg(long)]
    pub(crate) unsigned: bool,
    #[command(flatten)]
    options: PullOptions,
}

#[derive(Debug, Args)]
#[command(
    after_help = "It keeps everything younger than a day.\n\nExample: pgfresh template gc --remote --older-than 30d"
)]
pub(crate) struct Collect {
    /// Required, because this machine's own cache removes old templates automatically
    #[arg(long, required = true)]
    remote: bool,
    /// Minimum time since the push of a template
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub(crate) older_than: Duration,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    options: RemoteCacheOptions,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: pgfresh template keygen templates.key")]
pub(crate) struct Keygen {
    /// File for the secret key; the public key goes to FILE.pub
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "Uses the key in PGFRESH_SIGNING_KEY, unless --key names a file.\n\n\
    Example: pgfresh template sign --key templates.key /mnt/templates")]
pub(crate) struct Sign {
    /// Directory
    pub(crate) folder: PathBuf,
    /// File of the secret key
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: pgfresh template verify /mnt/templates")]
pub(crate) struct Verify {
    /// Directory
    pub(crate) folder: PathBuf,
    #[command(flatten)]
    options: VerifyOptions,
}

impl Template {
    /// Returns the options that determine the command's settings.
    pub(super) fn options(&self) -> Options {
        match self {
            Self::Build(Build { options, .. }) | Self::Push(Push { options, .. }) => options.into(),
            Self::List(List { options, .. }) | Self::Gc(Collect { options, .. }) => options.into(),
            Self::Show(Show { options, .. }) => options.into(),
            Self::Rm(Remove { options, .. }) => options.into(),
            Self::Import(Import { options, .. }) => options.into(),
            Self::Pull(Pull { options, .. }) => options.into(),
            Self::Verify(Verify { options, .. }) => options.into(),
            Self::Keygen(_) | Self::Sign(_) => Options::default(),
        }
    }
}
