//! Creates pipes with a small buffer, so that a writer blocks until its output is read.

use std::io::{self, PipeReader, PipeWriter};

use rustix::pipe::fcntl_setpipe_size;

/// Buffer size of a narrow pipe, in bytes. The kernel rounds it up to a page.
const BUFFER_SIZE: usize = 4096;

/// Creates a pipe whose buffer is one page. A writer that gets further ahead than that blocks until the
/// reader catches up.
pub fn narrow_pipe() -> io::Result<(PipeReader, PipeWriter)> {
    let (reader, writer) = io::pipe()?;
    fcntl_setpipe_size(&writer, BUFFER_SIZE)?;
    Ok((reader, writer))
}
