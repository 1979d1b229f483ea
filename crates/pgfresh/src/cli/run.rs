//! Defines the arguments of `pgfresh run`, and those that it shares with `pgfresh serve`.
// clap prints these doc comments as help, so they must be plain text.
#![allow(clippy::doc_markdown, clippy::doc_link_with_quotes)]

use std::ffi::OsString;

use clap::Args;
use clap::builder::FalseyValueParser;

use super::{number, port};
use crate::report_file::ReportFile;
use crate::variable::Variable;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pgfresh run -- pytest -q\n  \
    pgfresh run --profile -- pytest -q\n  \
    pgfresh run --env 'TEST_DATABASE_URL={url}' -- npm test")]
#[command(
    after_long_help = "Examples:\n  pgfresh run -- pytest -q\n  pgfresh run --profile -- pytest -q\n  \
    pgfresh run --compare -- pytest -q\n  \
    pgfresh run --env 'TEST_DATABASE_URL={url}' -- npm test\n  \
    pgfresh run --env 'DB_PORT={port}' --env 'DB_PASSWORD={password}' -- ./mvnw test\n\n\
    The command sees DATABASE_URL, PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE. It can connect to any other \
    database name as well: pgfresh creates that database as a copy of the template.\n\n\
    The exit code is the command's own; 128+N if signal N ended it; 125 if pgfresh failed; 126 if the command cannot \
    be run; 127 if it does not exist."
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag, and they combine freely")]
pub(crate) struct Run {
    /// Set another variable for the command; repeatable
    ///
    /// {url}, {host}, {port}, {user}, {password} and {database} stand for the server's own values.
    #[arg(long, value_name = "NAME=TEMPLATE")]
    pub(crate) env: Vec<Variable>,
    /// The TCP port on 127.0.0.1, for tests with a fixed URL; PGFRESH_PASSWORD sets the password [default: any that is free]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = port)]
    #[arg(hide_short_help = true)]
    pub(crate) port: u16,
    #[command(flatten)]
    pub(crate) service: ServiceArguments,
    /// If the command or the template's setup fails, keep data and log
    #[arg(long)]
    pub(crate) keep: bool,
    /// Run all steps of the template, even if it could be or was built on an earlier one
    #[arg(long, conflicts_with = "compare")]
    pub(crate) full: bool,
    /// Report at the end where the time went and what would help
    #[arg(long, group = "told")]
    pub(crate) profile: bool,
    /// Compare the command's time with that on a durable server on disk
    #[arg(long, group = "told", conflicts_with = "keep")]
    pub(crate) compare: bool,
    /// With --compare: the number of runs on each server
    #[arg(short = 'n', long, value_name = "N", default_value_t = 3, requires = "compare")]
    #[arg(value_parser = number(1..=1000))]
    pub(crate) rounds: u32,
    /// Write the profile or comparison to a .html, .json, .md, .csv or .txt file, or the profile's tests to .xml (JUnit); repeatable
    #[arg(long, value_name = "FILE", requires = "told", value_parser = ReportFile::of_tests)]
    pub(crate) report: Vec<ReportFile>,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// How clients are served.
#[derive(Debug, Default, Args)]
pub(crate) struct ServiceArguments {
    /// Compare each reset database with its template before reuse (slow)
    #[arg(long, env = "PGFRESH_PARANOID", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub(crate) paranoid: bool,
    /// Keep the databases of failed tests, and print their URLs at the end
    ///
    /// The clients' plugins tell pgfresh which tests failed.
    #[arg(long, env = "PGFRESH_KEEP_FAILED", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub(crate) keep_failed: bool,
    /// Accept TLS, with a certificate that pgfresh makes
    ///
    /// For sslmode=verify-full, "run" sets PGSSLROOTCERT to its root, and "serve" prints the path of it.
    #[arg(long, env = "PGFRESH_TLS", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub(crate) tls: bool,
}
