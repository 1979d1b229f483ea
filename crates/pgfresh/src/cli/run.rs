//! Defines the arguments of `pgfresh run`, including those shared with `pgfresh serve`.
// clap prints these doc comments as help, so they must be plain text.
#![allow(clippy::doc_markdown, clippy::doc_link_with_quotes)]

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use clap::{ArgGroup, Args};

use super::options::Options;
use super::values::{number, port};
use crate::report_file::ReportFile;
use crate::variable::Variable;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("reported").multiple(true))]
#[command(after_help = "Examples:\n  pgfresh run -- pytest -q\n  \
    pgfresh run --profile -- pytest -q\n  \
    pgfresh run --env 'TEST_DATABASE_URL={url}' -- npm test")]
#[command(
    after_long_help = "Examples:\n  pgfresh run -- pytest -q\n  pgfresh run --compare -- pytest -q\n  \
    pgfresh run --env 'DB_PORT={port}' --env 'DB_PASS={password}' -- mvn test\n\n\
    The command sees DATABASE_URL, PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE. When it connects to another \
    database name, pgfresh creates that database as a copy of the template.\n\
    Variables, such as PGFRESH_PLACE for --place, and keys of pgfresh.toml can also set options.\n\
    Exit code: the command's own; 128+N if signal N ended it; 125 if pgfresh failed; 126 if the command cannot \
    be run; 127 if it does not exist."
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag, and they combine freely")]
pub(crate) struct Run {
    /// Set another variable for the command; repeatable
    ///
    /// Placeholders: {url}, {host}, {port}, {user}, {password}, {database}
    #[arg(long, value_name = "NAME=TEMPLATE")]
    pub(crate) env: Vec<Variable>,
    /// TCP port, for tests with a fixed URL [default: any free port]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = port)]
    #[arg(hide_short_help = true)]
    pub(crate) port: u16,
    #[command(flatten)]
    pub(crate) service: ServiceOptions,
    /// Keep data and log if the command or the setup fails
    #[arg(long)]
    pub(crate) keep: bool,
    /// Build the template in full, not incrementally
    #[arg(long, conflicts_with = "compare")]
    pub(crate) full: bool,
    /// Report where the time went, and what would help
    #[arg(long, group = "reported")]
    pub(crate) profile: bool,
    /// Report which plans production would choose for the statements
    #[arg(long, group = "reported")]
    pub(crate) plans: bool,
    /// Production's statistics, from template import [default: plans.statistics in pgfresh.toml]
    #[arg(long, value_name = "FILE", requires = "plans", hide_short_help = true)]
    pub(crate) statistics: Option<PathBuf>,
    /// Fail if a plan's shape differs from the baseline in this file
    #[arg(long, value_name = "FILE", requires = "plans", hide_short_help = true)]
    pub(crate) plans_baseline: Option<PathBuf>,
    /// Write the shapes of all plans to the baseline instead
    #[arg(long, requires = "plans", hide_short_help = true)]
    pub(crate) update_baseline: bool,
    /// Write the suite's statements to this file, for migrate check
    #[arg(long, value_name = "FILE", conflicts_with = "compare", hide_short_help = true)]
    pub(crate) statements: Option<PathBuf>,
    /// Compare the time with a durable server on disk
    #[arg(long, group = "reported", conflicts_with_all = ["keep", "profile", "plans"])]
    pub(crate) compare: bool,
    /// Number of runs on each server, with --compare [default: 3]
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        default_value_t = 3,
        hide_default_value = true,
        requires = "compare"
    )]
    #[arg(value_parser = number(1..=1000))]
    pub(crate) rounds: u32,
    /// Report file: .html, .json, .md, .csv, .txt, .xml (JUnit); repeatable
    #[arg(long, value_name = "FILE", requires = "reported", value_parser = ReportFile::of_tests)]
    pub(crate) report: Vec<ReportFile>,
    /// Command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(super) options: Options,
}

/// Options for the service that clients use.
#[derive(Debug, Default, Args)]
pub(crate) struct ServiceOptions {
    /// Compare reset databases with their template (slow)
    #[arg(long, env = "PGFRESH_PARANOID", hide_env = true, value_parser = FalseyValueParser::new())]
    pub(crate) paranoid: bool,
    /// Keep the databases of failed tests, and print their URLs
    #[arg(long, env = "PGFRESH_KEEP_FAILED", hide_env = true, value_parser = FalseyValueParser::new())]
    pub(crate) keep_failed: bool,
    /// Accept TLS, with a certificate that pgfresh makes
    #[arg(long, env = "PGFRESH_TLS", hide_env = true, value_parser = FalseyValueParser::new())]
    pub(crate) tls: bool,
}
