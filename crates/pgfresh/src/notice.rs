//! Prints messages on standard error, so that messages don't mix with the results on standard output.

use std::fmt::Display;
use std::io::Write as _;

use anstream::adapter::strip_str;

/// Writes `text` to standard error, without colors unless standard error is a terminal. Ignores write errors so that
/// the command continues, whereas `eprintln!` would panic.
#[expect(clippy::let_underscore_must_use, reason = "no other place could show the text")]
pub(crate) fn print_notice(text: impl Display) {
    let mut out = anstream::stderr().lock();
    let _ = write!(out, "{text}").and_then(|()| out.flush());
}

/// Returns a text without escape sequences, so that the users' names and statements can't control the terminal.
pub(crate) fn plain(text: impl Display) -> String {
    server::printable_lines(&strip_str(&text.to_string()).to_string())
}

/// Writes a line to standard error, like [`print_notice`], but without escape sequences.
macro_rules! notice {
    ($($words:tt)*) => {
        $crate::notice::print_notice($crate::notice::plain(format_args!($($words)*)) + "\n")
    };
}
pub(crate) use notice;
