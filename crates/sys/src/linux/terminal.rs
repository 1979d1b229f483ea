//! Terminal and standard input of this process.

use std::io;
use std::os::fd::AsFd;

/// Whether this process leads its session and so gets the hang-up signal when the terminal closes.
#[must_use]
pub fn leads_its_session() -> bool {
    rustix::process::getsid(None) == Ok(rustix::process::getpid())
}

/// Makes `file` the standard input.
pub fn replace_stdin(file: impl AsFd) -> io::Result<()> {
    Ok(rustix::stdio::dup2_stdin(file)?)
}

/// Returns the number of columns of the terminal on standard error. `None` if standard error is not a terminal or has
/// no size.
#[must_use]
pub fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok()?;
    // A terminal without a size reports 0.
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}
