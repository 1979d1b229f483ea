//! Messages on standard error, beside the output on standard output.

use std::fmt::Display;
use std::io::Write as _;

/// Writes `text` to standard error, without its colours if that is no terminal. Ignores a failure to write, so that
/// the command goes on: `eprintln!` would panic.
#[expect(clippy::let_underscore_must_use, reason = "there is nowhere else to say it")]
pub(crate) fn print_aside(text: impl Display) {
    let mut out = anstream::stderr().lock();
    let _ = write!(out, "{text}").and_then(|()| out.flush());
}

/// Writes a line to standard error, as [`print_aside`] does.
macro_rules! aside {
    ($($words:tt)*) => { $crate::aside::print_aside(format_args!("{}\n", format_args!($($words)*))) };
}
pub(crate) use aside;
