//! Standard output, whose reader may close it early, as in `pgfresh template list | head -1`; and the verbosity.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};
use std::process;

use crate::failure::Failure;

/// Exit code of a command that wrote to a closed pipe, as shells have it: 128 and SIGPIPE's number.
const READER_GONE: i32 = 141;

/// Amount of messages on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    /// Errors only.
    Quiet,
    /// Events that are rare or take long.
    Normal,
    /// Each action with its place, reason and duration.
    Verbose,
    /// Events in the background, too.
    Background,
}

impl Verbosity {
    pub(crate) fn is_quiet(self) -> bool {
        self == Self::Quiet
    }

    pub(crate) fn is_verbose(self) -> bool {
        self >= Self::Verbose
    }
}

/// Writes `text` to standard output. Ends the process on a failure.
pub(crate) fn print(text: impl Display) {
    // The guard cleans up a server that this process may have.
    try_print(text).unwrap_or_else(|error| end(&error));
}

/// Writes `text` to standard output. Returns the error to a caller that has something to undo.
pub(crate) fn try_print(text: impl Display) -> io::Result<()> {
    let mut out = io::stdout().lock();
    write!(out, "{text}").and_then(|()| out.flush())
}

/// Ends the process after an `error` of [`try_print`]: quietly if the reader has closed its end.
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

/// Writes a failure as a line of JSON for the program that has started this process and may be gone.
pub(crate) fn tell_program(failure: &Failure) {
    if let Err(error) = try_print(format_args!("{}\n", failure.to_json())) {
        tracing::debug!(%error, "could not tell of a failure");
    }
}

/// Writes a line, as `println!` does.
macro_rules! say {
    ($($words:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($words)*))) };
}
pub(crate) use say;
