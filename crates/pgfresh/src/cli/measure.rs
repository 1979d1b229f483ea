//! Defines the arguments of `pgfresh doctor` and `pgfresh profile`.
// clap prints these doc comments as help, so they must be plain text.
#![allow(clippy::doc_markdown, clippy::doc_link_with_quotes)]

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::options::DoctorOptions;
use super::values::{soak, span};
use crate::report_file::ReportFile;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  pgfresh doctor\n  pgfresh doctor /var/lib/postgresql --quick\n  pgfresh doctor --suite 'pytest -q' --try\n  \
    pgfresh doctor --soak 2m\n  \
    pgfresh doctor --url postgresql://postgres@localhost/app\n\n\
    It measures the device, the file system, syncs and commits. Ctrl-C ends the measurement and shows the results so far."
)]
pub(crate) struct Doctor {
    /// Directory on the disk to measure [default: where a server's data would be on disk]
    pub(crate) path: Option<PathBuf>,
    /// Examine this server instead: settings, data, commits; changes nothing
    #[arg(long, value_name = "URL", conflicts_with_all = ["path", "soak", "suite", "profile", "try", "sysfs", "procfs"])]
    pub(crate) url: Option<String>,
    /// Sync for this time first, such as 2m, to see whether the disk throttles
    #[arg(long, value_name = "TIME", value_parser = soak)]
    pub(crate) soak: Option<Duration>,
    /// Run your tests once on a durable server, and predict their time without waiting
    #[arg(long, value_name = "COMMAND")]
    pub(crate) suite: Option<String>,
    /// Use a report of "run --profile" in JSON instead of running the suite
    #[arg(long, value_name = "FILE", conflicts_with = "suite")]
    pub(crate) profile: Option<PathBuf>,
    /// Measure the gain of each remedy, with six runs each
    #[arg(long)]
    pub(crate) r#try: bool,
    /// Measure for 3 s instead of 10 s
    #[arg(long)]
    pub(crate) quick: bool,
    /// Write the diagnosis to a .html, .json, .md, .csv or .txt file; repeatable
    #[arg(long, value_name = "FILE", value_parser = ReportFile::named)]
    pub(crate) report: Vec<ReportFile>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Directory to read instead of /sys
    #[arg(long, value_name = "PATH", help_heading = "For tests", hide_short_help = true)]
    pub(crate) sysfs: Option<PathBuf>,
    /// Directory to read instead of /proc
    #[arg(long, value_name = "PATH", help_heading = "For tests", hide_short_help = true)]
    pub(crate) procfs: Option<PathBuf>,
    #[command(flatten)]
    pub(super) options: DoctorOptions,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  pgfresh profile --url postgresql://postgres:secret@localhost/app --for 1m\n  \
    pgfresh profile --url \"$DATABASE_URL\" -- pytest -q\n\n\
    It changes nothing on that server. To profile pgfresh's own server: pgfresh run --profile -- COMMAND.\n\n\
    With a command, the exit code is that of \"run\". Otherwise, it is 0, or 1 if pgfresh failed."
)]
pub(crate) struct Profile {
    /// URL of the server, as for psql; the user must be a superuser or a member of pg_read_all_stats
    #[arg(long, value_name = "URL")]
    pub(crate) url: String,
    /// Length of the profile [default: until the command ends, else until Ctrl-C]
    #[arg(long, value_name = "TIME", value_parser = span, conflicts_with = "command")]
    pub(crate) r#for: Option<Duration>,
    /// Write the profile to a .html, .json, .md, .csv or .txt file; repeatable
    #[arg(long, value_name = "FILE", value_parser = ReportFile::named)]
    pub(crate) report: Vec<ReportFile>,
    /// Print one JSON object
    #[arg(long, conflicts_with = "command")]
    pub(crate) json: bool,
    /// Command to profile; pgfresh does not set its DATABASE_URL
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}
