//! Defines the arguments of `pgfresh bench`.
// clap prints these doc comments as help, so they must be plain text.
#![allow(clippy::doc_markdown)]

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use bench::EventStore;
use clap::{Args, Subcommand};

use super::options::{
    BenchEventsOptions, BenchFleetOptions, BenchFsyncOptions, BenchOptions, BenchStartOptions,
    BenchSuiteOptions, Options,
};
use super::values::number;
use crate::report_file::{Format, ReportFile};
use crate::variable::Variable;

#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "a process has one value")]
pub(crate) enum Bench {
    /// Time each phase of a server's start and stop, compared with initdb and pg_ctl
    #[command(after_help = "Example: pgfresh bench start --rounds 40")]
    Start {
        /// Number of rounds
        #[arg(long, default_value_t = 20, value_parser = number(3..=10_000))]
        rounds: u32,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        options: BenchStartOptions,
    },
    /// Time fresh databases, one by one and many at once, compared with CREATE DATABASE
    #[command(
        after_help = "Examples:\n  pgfresh bench fresh\n  pgfresh bench fresh --first --rounds 5\n  pgfresh bench fresh --recycle\n  pgfresh bench fresh --tables --rounds 6"
    )]
    Fresh {
        /// Number of rounds
        #[arg(long, default_value_t = 20, value_parser = number(3..=10_000))]
        rounds: u32,
        /// Time resets of used databases instead, compared with copies and TRUNCATE
        #[arg(long)]
        recycle: bool,
        /// Time the first 100 databases of a server instead, for each way to request them
        #[arg(long, conflicts_with = "recycle")]
        first: bool,
        /// Time resets after writes to 1, 10 and 100 tables instead, for templates with this many tables [default: 30,
        /// 300, 3000 and 10000]
        #[arg(
            long, value_name = "COUNT,COUNT…", value_delimiter = ',', value_parser = number(1..=100_000), require_equals = true,
            num_args = 0.., default_missing_values = ["30", "300", "3000", "10000"], conflicts_with_all = ["recycle", "first"]
        )]
        tables: Option<Vec<u32>>,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        options: BenchOptions,
    },
    /// Time databases whose tests open pools of sessions, compared with CREATE DATABASE
    #[command(after_help = "Example: pgfresh bench pools")]
    Pools {
        /// Number of rounds; each contender runs for a second in each round
        #[arg(long, default_value_t = 3, value_parser = number(3..=10_000))]
        rounds: u32,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        options: BenchOptions,
    },
    /// Time leases in rollback isolation, compared with clones and BEGIN … ROLLBACK by hand
    #[command(after_help = "Example: pgfresh bench rollback")]
    Rollback {
        /// Number of rounds; each contender runs for a second in each round
        #[arg(long, default_value_t = 10, value_parser = number(3..=10_000))]
        rounds: u32,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        options: BenchOptions,
    },
    /// Time clean-up by TRUNCATE, DELETE and rollback on disk, in RAM and with pgfresh
    #[command(after_help = "Example: pgfresh bench truncate /mnt/slow-disk")]
    Truncate {
        /// Directory on the disk to measure [default: where a server's data would be on disk]
        path: Option<PathBuf>,
        /// Number of rounds
        #[arg(long, default_value_t = 6, value_parser = number(1..=10_000))]
        rounds: u32,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        options: BenchOptions,
    },
    /// Time pgbench on a durable disk, with fsync off, in RAM and with pgfresh
    #[command(after_help = "Examples:\n  pgfresh bench pgbench\n  \
        pgfresh bench pgbench /mnt/slow-disk --scale 25 --seconds 300 --rounds 1")]
    Pgbench {
        /// Directory on the disk to measure [default: where a server's data would be on disk]
        path: Option<PathBuf>,
        /// Scale of pgbench: 15 MB for each unit, on five servers
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = number(1..=10_000))]
        scale: u32,
        /// Seconds of each measurement
        #[arg(long, value_name = "N", default_value_t = 2, value_parser = number(1..=86_400))]
        seconds: u32,
        /// Number of rounds; a round has 21 measurements
        #[arg(long, default_value_t = 6, value_parser = number(1..=10_000))]
        rounds: u32,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        options: BenchOptions,
    },
    /// Time appending events one by one, each in its own transaction
    #[command(after_help = "Examples:\n  pgfresh bench events\n  \
        pgfresh bench events /mnt/slow-disk --target durable --batches 500 --html events.html\n  \
        pgfresh bench events --target fast --target postgresql://postgres@localhost/app")]
    Events {
        /// Directory on the disk to measure [default: where a server's data would be on disk]
        path: Option<PathBuf>,
        /// Event store: durable, async, fast or a postgresql:// URL; repeatable [default: durable, async, fast]
        #[arg(long, value_name = "TARGET")]
        target: Vec<EventStore>,
        /// Number of batches for each target
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = number(1..=1_000_000))]
        batches: u32,
        /// Number of events in a batch
        #[arg(long, value_name = "N", default_value_t = 1000, value_parser = number(1..=1_000_000))]
        batch: u32,
        /// Directory to read instead of /sys
        #[arg(long, value_name = "PATH", help_heading = "For tests")]
        sysfs: Option<PathBuf>,
        /// Directory to read instead of /proc
        #[arg(long, value_name = "PATH", help_heading = "For tests")]
        procfs: Option<PathBuf>,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        options: BenchEventsOptions,
    },
    /// Time your test suite on a durable server on disk, with fsync off, and in RAM
    #[command(after_help = "Examples:\n  pgfresh bench suite -- pytest -q\n  \
        pgfresh bench suite --rounds 6 --html suite.html -- npm test\n\n\
        The command sees the same variables as with \"run\". The exit code is the highest of all runs.")]
    Suite(Suite),
    /// Time pgbench and COPY through the gateway, compared with direct connections and PgBouncer
    #[command(after_help = "Example: pgfresh bench gateway --rounds 10")]
    Gateway {
        /// Number of rounds
        #[arg(long, default_value_t = 5, value_parser = number(3..=10_000))]
        rounds: u32,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        options: BenchOptions,
    },
    /// Time many machines that need the same template at once, with and without a shared remote
    #[command(
        after_help = "Examples:\n  pgfresh bench fleet\n  pgfresh bench fleet --shards 4 --seconds 10 --remote s3://bucket/bench"
    )]
    Fleet {
        /// Number of machines, each a process with an empty cache
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = number(2..=200))]
        shards: u32,
        /// Duration of their template's setup, in seconds
        #[arg(long, value_name = "N", default_value_t = 45, value_parser = number(0..=3600))]
        seconds: u32,
        /// Remote, where the template remains afterwards [default: a directory]
        #[arg(long, value_name = "URL")]
        remote: Option<String>,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        options: BenchFleetOptions,
    },
    /// Time syncs as doctor does, compared with pg_test_fsync
    #[command(after_help = "Example: pgfresh bench fsync /var/lib/postgresql --rounds 6")]
    Fsync {
        /// Directory on the disk to measure [default: where a server's data would be on disk]
        path: Option<PathBuf>,
        /// Number of rounds; a round takes 36 s
        #[arg(long, default_value_t = 3, value_parser = number(1..=1000))]
        rounds: u32,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        options: BenchFsyncOptions,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Suite {
    /// Directory on the disk to measure [default: where a server's data would be on disk]
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Option<PathBuf>,
    /// Number of rounds
    #[arg(long, default_value_t = 3, value_parser = number(1..=10_000))]
    pub(crate) rounds: u32,
    /// Set another variable for the command, as for "run"; repeatable
    #[arg(long, value_name = "NAME=TEMPLATE")]
    pub(crate) env: Vec<Variable>,
    #[command(flatten)]
    pub(crate) output: Output,
    /// Command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    options: BenchSuiteOptions,
}

impl Bench {
    /// Returns the benchmark's output options.
    pub(crate) fn output(&self) -> &Output {
        match self {
            Self::Start { output, .. }
            | Self::Fresh { output, .. }
            | Self::Pools { output, .. }
            | Self::Rollback { output, .. }
            | Self::Truncate { output, .. }
            | Self::Events { output, .. }
            | Self::Pgbench { output, .. }
            | Self::Gateway { output, .. }
            | Self::Fleet { output, .. }
            | Self::Fsync { output, .. }
            | Self::Suite(Suite { output, .. }) => output,
        }
    }

    /// Returns the options that determine the command's settings.
    pub(super) fn options(&self) -> Options {
        match self {
            Self::Start { options, .. } => options.into(),
            Self::Fresh { options, .. }
            | Self::Pools { options, .. }
            | Self::Rollback { options, .. }
            | Self::Truncate { options, .. }
            | Self::Pgbench { options, .. }
            | Self::Gateway { options, .. } => options.into(),
            Self::Events { options, .. } => options.into(),
            Self::Fleet { options, .. } => options.into(),
            Self::Fsync { options, .. } => options.into(),
            Self::Suite(Suite { options, .. }) => options.into(),
        }
    }
}

/// Destinations of the results. Files are complete after each round.
#[derive(Debug, Args)]
#[command(next_help_heading = "Results")]
pub(crate) struct Output {
    /// Print every measured value as one JSON object, or write it to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = STANDARD)]
    json: Option<PathBuf>,
    /// Print every measured value as CSV, or write it to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = STANDARD)]
    csv: Option<PathBuf>,
    /// Write an HTML page with tables, plots and the machine to FILE
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Path that stands for standard output.
const STANDARD: &str = "-";

impl Output {
    /// Returns the files to write the results to, each with its format.
    pub(crate) fn files(&self) -> Vec<ReportFile> {
        let files = self.wanted().filter(|(path, _)| *path != Path::new(STANDARD));
        files.map(|(path, format)| ReportFile { path: path.to_owned(), format }).collect()
    }

    /// Returns the formats to print on standard output.
    pub(crate) fn printed(&self) -> Vec<Format> {
        let printed = self.wanted().filter(|(path, _)| *path == Path::new(STANDARD));
        let printed: Vec<Format> = printed.map(|(_, format)| format).collect();
        if printed.is_empty() { vec![Format::Text] } else { printed }
    }

    fn wanted(&self) -> impl Iterator<Item = (&Path, Format)> {
        let Self { json, csv, html } = self;
        let wanted = [(json, Format::Json), (csv, Format::Csv), (html, Format::Html)];
        wanted.into_iter().filter_map(|(path, format)| Some((path.as_deref()?, format)))
    }
}
