//! Prints messages on standard error, so that they don't mix with the results on standard output.

use std::fmt::Display;
use std::io::Write as _;

/// Writes `text` to standard error, without colors unless standard error is a terminal. Ignores write errors so that
/// the command continues, whereas `eprintln!` would panic.
#[expect(clippy::let_underscore_must_use, reason = "no other place could show the text")]
pub(crate) fn print_notice(text: impl Display) {
    let mut out = anstream::stderr().lock();
    let _ = write!(out, "{text}").and_then(|()| out.flush());
}

/// Writes a line to standard error, like [`print_notice`].
macro_rules! notice {
    ($($words:tt)*) => { $crate::notice::print_notice(format_args!("{}\n", format_args!($($words)*))) };
}
pub(crate) use notice;
