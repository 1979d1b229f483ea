//! The words of `pgfresh template`.
// The comments of items are its help: plain text.
#![allow(clippy::doc_markdown, clippy::doc_link_with_quotes)]

use std::path::PathBuf;

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
    /// Copy a template to a directory, for another machine's cache
    #[command(after_help = "Example: pgfresh template push .cache/pgfresh")]
    Push {
        /// The directory
        folder: PathBuf,
    },
    /// Add the templates of a directory, written by "push", to the cache
    #[command(after_help = "Example: pgfresh template pull .cache/pgfresh")]
    Pull {
        /// The directory
        folder: PathBuf,
    },
}
