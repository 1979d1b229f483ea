//! Standard output, whose reader may have seen enough: `pgfresh template list | head -1`; and how much is said beside it.

use std::fmt::Display;
use std::io::Write;

/// What shells say of a command that wrote to a closed pipe: 128 and SIGPIPE's number.
const READER_GONE: i32 = 141;

/// How much is said on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    /// Nothing but errors.
    Quiet,
    /// What is rare or takes long.
    Normal,
    /// What is done, where, why, and how long it takes.
    Verbose,
    /// What happens in the background, too.
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

/// Writes `text` as it is. Ends the process quietly if the reader has closed it.
pub(crate) fn print(text: impl Display) {
    let mut out = std::io::stdout().lock();
    if write!(out, "{text}").and_then(|()| out.flush()).is_err() {
        // A server that we may have is cleared away by its guard.
        std::process::exit(READER_GONE);
    }
}

/// Writes a line, as `println!` does.
macro_rules! say {
    ($($words:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($words)*))) };
}
pub(crate) use say;
