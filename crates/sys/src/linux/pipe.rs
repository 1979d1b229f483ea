//! Pipes whose writers wait.

use std::io::{self, PipeReader, PipeWriter};

use rustix::pipe::fcntl_setpipe_size;

/// Bytes that a narrow pipe holds; the kernel rounds up to a page.
const NARROW: usize = 4096;

/// Makes a pipe that holds one page. A writer of more bytes waits for the reader.
pub fn narrow_pipe() -> io::Result<(PipeReader, PipeWriter)> {
    let (reader, writer) = io::pipe()?;
    fcntl_setpipe_size(&writer, NARROW)?;
    Ok((reader, writer))
}
