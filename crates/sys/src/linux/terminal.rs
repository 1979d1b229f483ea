//! Examines the terminal of this process, and replaces its standard input.

use std::io;
use std::os::fd::AsFd;

/// Whether this process leads its session. The leader receives a hang-up signal when the terminal closes.
#[must_use]
pub fn leads_its_session() -> bool {
    rustix::process::getsid(None) == Ok(rustix::process::getpid())
}

/// Makes `file` our standard input.
pub fn replace_stdin(file: impl AsFd) -> io::Result<()> {
    Ok(rustix::stdio::dup2_stdin(file)?)
}

/// Returns the width in columns of the terminal on standard error. Returns `None` if standard error is not a
/// terminal, or if the terminal has no size.
#[must_use]
pub fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok()?;
    // A terminal without a size reports 0.
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}
