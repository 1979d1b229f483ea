//! Examines this process's terminal and replaces its standard input.

use std::io;
use std::os::fd::AsFd;

/// Returns true if this process leads its session. A session leader receives a hang-up signal when the
/// terminal closes.
#[must_use]
pub fn leads_its_session() -> bool {
    rustix::process::getsid(None) == Ok(rustix::process::getpid())
}

/// Makes `file` our standard input.
pub fn replace_stdin(file: impl AsFd) -> io::Result<()> {
    Ok(rustix::stdio::dup2_stdin(file)?)
}

/// Returns the width of the terminal `output` in columns, or `None`
/// if it isn't a terminal or the terminal doesn't have a size.
#[must_use]
pub fn terminal_width(output: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(output).ok()?;
    // A terminal without a size reports 0.
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}
