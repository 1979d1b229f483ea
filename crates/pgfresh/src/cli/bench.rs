//! The words of `pgfresh bench`.
// The comments of items are its help: plain text.
#![allow(clippy::doc_markdown)]

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use bench::EventStore;
use clap::{Args, Subcommand};

use crate::report_file::{Format, ReportFile};

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Time from nothing to the first answer and back, phase by phase, beside its floor and the same thing by hand
    #[command(after_help = "Example: pgfresh bench start --rounds 40")]
    Start {
        /// How often each contender runs
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(3..=10_000))]
        rounds: u32,
        #[command(flatten)]
        output: Output,
    },
    /// Time new databases: one by one, many at once, as many as there can be; beside CREATE DATABASE by hand
    #[command(after_help = "Examples:\n  pgfresh bench fresh\n  pgfresh bench fresh --recycle")]
    Fresh {
        /// How often each contender has its turn
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(3..=10_000))]
        rounds: u32,
        /// Time used databases made as new instead, beside copies and TRUNCATE
        #[arg(long)]
        recycle: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Time tests of one session in rollback isolation, beside databases of their own and BEGIN … ROLLBACK by hand
    #[command(after_help = "Example: pgfresh bench rollback")]
    Rollback {
        /// How often each contender has its turn, for a second each time
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(3..=10_000))]
        rounds: u32,
        #[command(flatten)]
        output: Output,
    },
    /// Time tests that clean up by TRUNCATE, DELETE or rollback on a durable disk, in RAM and with pgfresh, beside published figures
    #[command(after_help = "Example: pgfresh bench truncate /mnt/slow-disk")]
    Truncate {
        /// A directory on the disk in question [default: where a server's data would live on disk]
        path: Option<PathBuf>,
        /// How often each contender has its turn
        #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        rounds: u32,
        #[command(flatten)]
        output: Output,
    },
    /// Time pgbench with one, two and three clients on a durable disk, with flushing off, in RAM and with pgfresh, beside published figures
    #[command(after_help = "Examples:\n  pgfresh bench pgbench\n  \
        pgfresh bench pgbench /mnt/slow-disk --scale 25 --seconds 300 --rounds 1")]
    Pgbench {
        /// A directory on the disk in question [default: where a server's data would live on disk]
        path: Option<PathBuf>,
        /// pgbench's scale: 15 MB each, on five servers
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        scale: u32,
        /// How long each goes on in its turn
        #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=86_400))]
        seconds: u32,
        /// How often each contender has its turn; a round takes 21 turns
        #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        rounds: u32,
        #[command(flatten)]
        output: Output,
    },
    /// Time events that are appended one by one, each in a transaction, with the course, the running average and the temperature
    #[command(after_help = "Examples:\n  pgfresh bench events\n  \
        pgfresh bench events /mnt/slow-disk --target durable --batches 500 --html events.html\n  \
        pgfresh bench events --target fast --target postgresql://postgres@localhost/app")]
    Events {
        /// A directory on the disk in question [default: where a server's data would live on disk]
        path: Option<PathBuf>,
        /// Where they go: durable, async or fast, a server of ours, or postgresql://…, where a schema is made and removed; may be repeated [default: durable, async, fast]
        #[arg(long, value_name = "TARGET")]
        target: Vec<EventStore>,
        /// Batches for each target
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        batches: u32,
        /// Events in a batch
        #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        batch: u32,
        /// Another folder for /sys
        #[arg(long, value_name = "PATH", help_heading = "For tests")]
        sysfs: Option<PathBuf>,
        /// Another folder for /proc
        #[arg(long, value_name = "PATH", help_heading = "For tests")]
        procfs: Option<PathBuf>,
        #[command(flatten)]
        output: Output,
    },
    /// Run your suite in turn on a durable server on disk, on one there that flushes nothing, and on one in RAM
    #[command(after_help = "Examples:\n  pgfresh bench suite -- pytest -q\n  \
        pgfresh bench suite --rounds 6 --html suite.html -- npm test\n\n\
        The command sees what \"run\" tells it. The exit code is the greatest that it had.")]
    Suite(Suite),
    /// Time pgbench, COPY and a crowd of sessions through the gateway, beside direct connections and PgBouncer
    #[command(after_help = "Example: pgfresh bench gateway --rounds 10")]
    Gateway {
        /// How often each contender has its turn
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(3..=10_000))]
        rounds: u32,
        #[command(flatten)]
        output: Output,
    },
    /// Time syncs as doctor does beside pg_test_fsync itself, in turn on the same disk, and beside published figures
    #[command(after_help = "Example: pgfresh bench fsync /var/lib/postgresql --rounds 6")]
    Fsync {
        /// A directory on the disk in question [default: where a server's data would live on disk]
        path: Option<PathBuf>,
        /// How often each has its turn; a round takes 36 s
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
        rounds: u32,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Suite {
    /// A directory on the disk in question [default: where a server's data would live on disk]
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Option<PathBuf>,
    /// How often each server has its turn
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rounds: u32,
    /// One more variable for the command, as for "run"; may be repeated
    #[arg(long, value_name = "NAME=TEMPLATE")]
    pub(crate) env: Vec<String>,
    #[command(flatten)]
    pub(crate) output: Output,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

impl Bench {
    /// Where its results go.
    pub(crate) fn output(&self) -> &Output {
        match self {
            Self::Start { output, .. }
            | Self::Fresh { output, .. }
            | Self::Rollback { output, .. }
            | Self::Truncate { output, .. }
            | Self::Events { output, .. }
            | Self::Pgbench { output, .. }
            | Self::Gateway { output, .. }
            | Self::Fsync { output, .. }
            | Self::Suite(Suite { output, .. }) => output,
        }
    }
}

/// Where the results go. Files have what is finished after each round.
#[derive(Debug, Args)]
#[command(next_help_heading = "Results")]
pub(crate) struct Output {
    /// Print one JSON object with every value that was measured, or write it into FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = STANDARD)]
    json: Option<PathBuf>,
    /// Print lines of CSV with every value that was measured, or write them into FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = STANDARD)]
    csv: Option<PathBuf>,
    /// Write a page into FILE: tables, pictures, and what machine it was
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Stands for standard output.
const STANDARD: &str = "-";

impl Output {
    /// The files, and what goes into each.
    pub(crate) fn files(&self) -> Vec<ReportFile> {
        let files = self.wanted().filter(|(path, _)| *path != Path::new(STANDARD));
        files.map(|(path, format)| ReportFile { path: path.to_owned(), format }).collect()
    }

    /// In which formats it is printed.
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
