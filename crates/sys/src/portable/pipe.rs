//! Creates pipes whose writer blocks until its output is read.

use std::io::{self, PipeReader, PipeWriter};

/// Creates a pipe. Its buffer has the system's size, because POSIX has no call to change it.
pub fn narrow_pipe() -> io::Result<(PipeReader, PipeWriter)> {
    io::pipe()
}
