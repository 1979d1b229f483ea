//! Defines the arguments of `pgfresh template`.
// clap prints these doc comments as help, so they must be plain text.
#![allow(clippy::doc_markdown, clippy::doc_link_with_quotes)]

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Template {
    /// Build a template, unless the cache has it
    #[command(after_help = "Examples:\n  pgfresh template build\n  \
        pgfresh template build --setup 'alembic upgrade head' --inputs 'migrations/**'")]
    Build {
        /// A template of pgfresh.toml [default: the one that "run" would start from]
        name: Option<String>,
        /// If the setup fails, keep data and log
        #[arg(long)]
        keep: bool,
        /// Run all steps, even if the template could be or was built on an earlier one
        #[arg(long)]
        full: bool,
    },
    /// List the cached templates, the last used first
    #[command(after_help = "Example: pgfresh template list --json")]
    List {
        /// Print one JSON array
        #[arg(long)]
        json: bool,
    },
    /// Show what a template is made of, and what has changed since it was built
    #[command(after_help = "Example: pgfresh template show app")]
    Show {
        /// A template of pgfresh.toml, or the first digits of a fingerprint [default: as for "run"]
        name: Option<String>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Remove templates that are not in use from the cache
    #[command(after_help = "Examples:\n  pgfresh template rm app\n  pgfresh template rm --all")]
    Rm {
        /// Templates of this project, or the first digits (at least four) of fingerprints
        #[arg(required_unless_present = "all", conflicts_with = "all", value_name = "NAME|FINGERPRINT")]
        names: Vec<String>,
        /// Remove all templates of all projects, and the base images
        #[arg(long)]
        all: bool,
    },
    /// Write the schema of a live database to an SQL file; that server is only read
    #[command(after_help = "Example: pgfresh template import postgresql://me@db.example/shop schema.sql")]
    Import {
        /// Its URL, as for psql, without the password: put that in PGPASSWORD or ~/.pgpass
        url: String,
        /// The file to write
        file: PathBuf,
    },
    /// Copy a template to the remote template cache, or to a directory, for other machines
    #[command(
        after_help = "Signs it with the key in PGFRESH_SIGNING_KEY, if that is set; a remote needs one.\n\n\
        Examples:\n  pgfresh template push\n  pgfresh template push --key templates.key /mnt/templates"
    )]
    Push {
        /// A directory, or the URL of a remote [default: the remote of pgfresh.toml]
        #[arg(value_name = "FOLDER|URL")]
        target: Option<String>,
        /// Sign with the secret key in this file
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
    },
    /// Add the template from the remote template cache, or those of a directory, to the cache
    #[command(
        after_help = "If public keys are configured (keys in [cache]), one of them must have signed each template.\n\n\
        Examples:\n  pgfresh template pull\n  pgfresh template pull .cache/pgfresh"
    )]
    Pull {
        /// A directory, or the URL of a remote [default: the remote of pgfresh.toml]
        #[arg(value_name = "FOLDER|URL")]
        target: Option<String>,
        /// Take templates of a directory without a signature, although keys are configured
        #[arg(long)]
        unsigned: bool,
    },
    /// Remove old templates from the remote template cache, and what no other template there needs
    #[command(
        after_help = "What is younger than a day stays.\n\nExample: pgfresh template gc --remote --older-than 30d"
    )]
    Gc {
        /// Required: the cache of this machine removes what is old by itself
        #[arg(long, required = true)]
        remote: bool,
        /// Templates that were pushed longer ago
        #[arg(long, value_name = "AGE", value_parser = super::age)]
        older_than: Duration,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Make a pair of keys for signing templates
    #[command(after_help = "Example: pgfresh template keygen templates.key")]
    Keygen {
        /// The file for the secret key; the public one goes to FILE.pub
        file: PathBuf,
    },
    /// Sign the templates of a directory, written by "push"
    #[command(after_help = "Uses the key in PGFRESH_SIGNING_KEY, unless --key names a file.\n\n\
        Example: pgfresh template sign --key templates.key /mnt/templates")]
    Sign {
        /// The directory
        folder: PathBuf,
        /// The file of the secret key
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
    },
    /// Check the signatures and all files of the templates in a directory
    #[command(after_help = "Example: pgfresh template verify /mnt/templates")]
    Verify {
        /// The directory
        folder: PathBuf,
    },
}
