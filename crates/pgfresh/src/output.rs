//! Writes to standard output and defines the verbosity. The reader of standard output may close it early, as in
//! `pgfresh template list | head -1`.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};
use std::process;

use crate::failure::Failure;
use crate::notice::notice;

/// Exit code of a command that wrote to a closed pipe: 128 plus the number of SIGPIPE, as in shells.
const READER_GONE: i32 = 141;

/// How many messages pgfresh prints on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    /// Only errors.
    Quiet,
    /// Also rare and slow events.
    Normal,
    /// Also each action with its location, its reason and its duration.
    Verbose,
    /// Also background tasks.
    Background,
}

impl Verbosity {
    pub(crate) fn is_quiet(self) -> bool {
        self == Self::Quiet
    }

    pub(crate) fn is_verbose(self) -> bool {
        self >= Self::Verbose
    }

    /// Prints a line on standard error if the user wants details.
    pub(crate) fn detail(self, line: impl FnOnce() -> String) {
        if self.is_verbose() {
            notice!("pgfresh: {}", line());
        }
    }
}

/// Writes `text` to standard output, or exits if that fails.
pub(crate) fn print(text: impl Display) {
    // If this process owns a server, the server's guard (a process that outlives this one) cleans up.
    try_print(text).unwrap_or_else(|error| end(&error));
}

/// Writes `text` to standard output, for callers that have to undo something after an error.
pub(crate) fn try_print(text: impl Display) -> io::Result<()> {
    let mut out = io::stdout().lock();
    write!(out, "{text}").and_then(|()| out.flush())
}

/// Exits after an error from [`try_print`], without a message if the reader closed the pipe.
pub(crate) fn end(error: &io::Error) -> ! {
    if error.kind() == ErrorKind::BrokenPipe {
        process::exit(READER_GONE);
    }
    could_not_print(error).report(1);
    process::exit(1)
}

pub(crate) fn could_not_print(error: &io::Error) -> Failure {
    Failure::new(format!("could not write to standard output: {error}"))
}

/// Writes a failure as a line of JSON for the program that started this process. That program may already be gone.
pub(crate) fn report_to_program(failure: &Failure) {
    let line = serde_json::to_string(&failure.to_response()).map_err(io::Error::from);
    if let Err(error) = line.and_then(|line| try_print(format_args!("{line}\n"))) {
        tracing::debug!(%error, "could not report a failure");
    }
}

/// Writes a line to standard output, like `println!`.
macro_rules! print_line {
    ($($words:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($words)*))) };
}
pub(crate) use print_line;
