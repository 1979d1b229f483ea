//! Defines the arguments of `pgfresh explain`.
// clap prints these doc comments as help, so they must be plain text.
#![allow(clippy::doc_markdown, clippy::doc_link_with_quotes)]

use std::path::PathBuf;

use clap::Args;

use super::options::ExplainOptions;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  pgfresh explain --statistics production.json 'SELECT * FROM orders WHERE customer_id = 7'\n  \
    pgfresh explain --generic 'SELECT * FROM orders WHERE customer_id = $1'\n\n\
    It copies the template, gives the copy production's statistics and sizes, and prints PostgreSQL's own plans for statements. It \
    does not execute them. \"pgfresh template import --statistics URL\" writes the statistics."
)]
pub(crate) struct Explain {
    /// Statement, or a file with statements, or - for standard input
    #[arg(value_name = "SQL|FILE|-")]
    pub(crate) source: String,
    /// Production's statistics. Without this option, plans.statistics in pgfresh.toml names the file
    #[arg(long, value_name = "FILE")]
    pub(crate) statistics: Option<PathBuf>,
    /// Print plans for unknown values, if the statement has parameters such as $1
    #[arg(long)]
    pub(crate) generic: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(super) options: ExplainOptions,
}
