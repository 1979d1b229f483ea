//! Defines the arguments of `pgfresh faults`.
// clap prints these doc comments as help, so they must be plain text.
#![allow(clippy::doc_markdown, clippy::doc_link_with_quotes)]

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;

use super::options::FaultTrialsOptions;
use super::values::{name, number, span};
use crate::report_file::ReportFile;
use crate::variable::Variable;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pgfresh faults -- pytest -k checkout\n  \
    pgfresh faults --budget 10m -- pytest -q {test}\n\n\
    Exit code: 0; 1 if there are findings; the command's own code if it fails without faults; 125 if pgfresh fails or tried no fault.")]
#[command(after_long_help = "Examples:\n  pgfresh faults -- pytest -k checkout\n  \
    pgfresh faults --budget 10m --report faults.xml -- pytest -q {test}\n\n\
    pgfresh runs COMMAND twice to record its statements. It then runs COMMAND once for each pair of a statement and a fault, each \
    on its own server: connection lost before and after COMMIT, serialization failure, deadlock, canceled query. It reports runs \
    that hang, and runs that pass with lost or doubled rows. COMMIT comes first, then writes, then reads.\n\
    If COMMAND contains {test}, each run has only the test with the fault. pgfresh replaces {test} with the arguments that select \
    this test: for pytest, go test, node --test, Vitest, Jest, Maven and cargo test. For other test runners, {test} becomes the \
    name that a pgfresh client reports.\n\
    Exit code: 0; 1 if there are findings; the command's own code if it fails without faults; 125 if pgfresh fails or tried no \
    fault; 130 after a signal without findings.")]
pub(crate) struct FaultTrials {
    /// Time after which no run begins [default: 5m]
    #[arg(long, value_name = "TIME", default_value = "5m", hide_default_value = true, value_parser = span, allow_hyphen_values = true)]
    pub(crate) budget: Duration,
    /// Number of runs at the same time [default: number of processors]
    #[arg(short, long, value_name = "N", value_parser = number(1..=256), allow_negative_numbers = true)]
    pub(crate) jobs: Option<u32>,
    /// Run only faults with this name, or whose names begin with it: TEST, TEST:STATEMENT, TEST:STATEMENT:FAULT; repeatable
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub(crate) only: Vec<String>,
    /// Leave this table or column out of the comparison; repeatable
    #[arg(long, value_name = "TABLE[.COLUMN]", value_parser = name)]
    pub(crate) ignore: Vec<String>,
    /// Set another variable for the command; repeatable
    #[arg(long, value_name = "NAME=TEMPLATE")]
    pub(crate) env: Vec<Variable>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Report file: .html, .json, .md, .csv, .txt, .xml (JUnit); repeatable
    #[arg(long, value_name = "FILE", value_parser = ReportFile::of_tests)]
    pub(crate) report: Vec<ReportFile>,
    /// Command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(super) options: FaultTrialsOptions,
}
