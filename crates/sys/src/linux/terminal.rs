//! The terminal that we may have, and our standard input.

use std::io;
use std::os::fd::AsFd;

/// Whether our process is the first of its session: the one that hears when its terminal is closed.
#[must_use]
pub fn leads_its_session() -> bool {
    rustix::process::getsid(None) == Ok(rustix::process::getpid())
}

/// Makes `file` our standard input.
pub fn replace_stdin(file: impl AsFd) -> io::Result<()> {
    Ok(rustix::stdio::dup2_stdin(file)?)
}

/// Columns of the terminal that is our standard error, if it is one.
#[must_use]
pub fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok()?;
    // A terminal without a size says 0.
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}
