//! Defines the arguments of `pgfresh migrate`.
// clap prints these doc comments as help, so they must be plain text.
#![allow(clippy::doc_markdown, clippy::doc_link_with_quotes)]

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use migrations::TableRows;

use super::options::{MigrateOptions, Options};
use crate::report_file::ReportFile;
use crate::variable::Variable;

/// Exit codes, for the help of each command.
const EXIT_CODES: &str =
    "Exit code: 0; 1 if the check fails; the command's own code if the command fails; 125 if pgfresh fails.";

#[derive(Debug, Subcommand)]
pub(crate) enum Migrate {
    /// Show what new migrations lock, scan, rewrite and break, on the template from before them
    Check(CheckMigrations),
    /// Migrate up, down and up again, and show what "down" leaves behind
    Roundtrip(Roundtrip),
    /// Compare a full build with an older template plus the new migrations
    Compare(CompareBuilds),
}

#[derive(Debug, Args)]
#[command(after_help = format!("Examples:\n  pgfresh migrate check\n  pgfresh migrate check -- alembic upgrade head\n  \
    pgfresh migrate check --rows orders=48M --rows items=200M\n  \
    pgfresh migrate check --suite -- pytest\n\n{EXIT_CODES}"))]
#[command(after_long_help = format!("Examples:\n  pgfresh migrate check\n  pgfresh migrate check -- alembic upgrade head\n  \
    pgfresh migrate check --from v1.2.0 --statistics production.json --report report.md\n  \
    pgfresh migrate check --suite -- pytest\n\n\
    pgfresh checks out the revision from before the change, builds the template of that revision, or finds it in the cache, and \
    runs the migrations of the working tree on a copy. Without COMMAND, it runs the template's setup command again, or the new \
    files of the template's SQL.\n{EXIT_CODES}"))]
pub(crate) struct CheckMigrations {
    /// Revision before the migrations [default: where the branch left main]
    #[arg(long, value_name = "REF")]
    pub(crate) from: Option<String>,
    /// Production's statistics, from template import [default: plans.statistics in pgfresh.toml]
    #[arg(long, value_name = "FILE")]
    pub(crate) statistics: Option<PathBuf>,
    /// Rows of a table in production, such as orders=48M; repeatable
    #[arg(long, value_name = "TABLE=N")]
    pub(crate) rows: Vec<TableRows>,
    /// The suite's statements, from "run --statements" [default: the last recording]
    #[arg(long, value_name = "FILE")]
    pub(crate) statements: Option<PathBuf>,
    /// Run COMMAND, the tests of the old revision, on the migrated database
    #[arg(long)]
    pub(crate) suite: bool,
    /// Set another variable for the command; repeatable
    #[arg(long, value_name = "NAME=TEMPLATE")]
    pub(crate) env: Vec<Variable>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Report file: .md, .sarif, .xml (JUnit), .html, .json, .csv, .txt; repeatable
    #[arg(long, value_name = "FILE", value_parser = ReportFile::of_migrations)]
    pub(crate) report: Vec<ReportFile>,
    /// Migration command, or the test command with --suite
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    options: MigrateOptions,
}

#[derive(Debug, Args)]
#[command(after_help = format!(
    "Example: pgfresh migrate roundtrip --up 'alembic upgrade head' --down 'alembic downgrade -1'\n\n{EXIT_CODES}"
))]
pub(crate) struct Roundtrip {
    /// Shell command that migrates up
    #[arg(long, value_name = "COMMAND")]
    pub(crate) up: String,
    /// Shell command that migrates down
    #[arg(long, value_name = "COMMAND")]
    pub(crate) down: String,
    /// Revision before the migrations [default: where the branch left main]
    #[arg(long, value_name = "REF")]
    pub(crate) from: Option<String>,
    /// Set another variable for the commands; repeatable
    #[arg(long, value_name = "NAME=TEMPLATE")]
    pub(crate) env: Vec<Variable>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    options: MigrateOptions,
}

#[derive(Debug, Args)]
#[command(after_help = format!("Examples:\n  pgfresh migrate compare main\n  \
    pgfresh migrate compare v1.2.0 -- alembic upgrade head\n\n\
    Different rows are also shown, but do not count as a difference, because many builds write the time.\n{EXIT_CODES}"))]
pub(crate) struct CompareBuilds {
    /// Revision of the older template
    #[arg(value_name = "REF")]
    pub(crate) from: String,
    /// Set another variable for the command; repeatable
    #[arg(long, value_name = "NAME=TEMPLATE")]
    pub(crate) env: Vec<Variable>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Migration command [default: the template's setup, or its new SQL files]
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    options: MigrateOptions,
}

impl Migrate {
    /// Returns the options that determine the command's settings.
    pub(super) fn options(&self) -> Options {
        let (Self::Check(CheckMigrations { options, .. })
        | Self::Roundtrip(Roundtrip { options, .. })
        | Self::Compare(CompareBuilds { options, .. })) = self;
        options.into()
    }
}
