//! Creates pipes with a small buffer, so that a writer blocks until this process reads its output.

use std::io::{self, PipeReader, PipeWriter};
use std::time::Duration;

use rustix::pipe::fcntl_setpipe_size;

use crate::{host, wait_readable};

/// Buffer size of a narrow pipe, in bytes. The kernel rounds it up to a page.
const BUFFER_SIZE: usize = 4096;

/// The read end of a pipe whose buffer has the size of one page. A writer blocks once this buffer is full.
#[derive(Debug)]
pub struct NarrowPipe(PipeReader);

impl NarrowPipe {
    /// Opens a pipe, and returns both ends.
    pub fn open() -> io::Result<(Self, PipeWriter)> {
        let (reader, writer) = io::pipe()?;
        fcntl_setpipe_size(&writer, BUFFER_SIZE)?;
        Ok((Self(reader), writer))
    }

    /// Waits until a process has written into the pipe, or until all writers
    /// have closed it. Returns false if neither happens within `limit`.
    pub fn wait_for_output(&self, limit: Duration) -> io::Result<bool> {
        wait_readable(&self.0, limit)
    }

    /// Returns true if the process's standard output is this pipe. Returns false if the system can't tell.
    #[must_use]
    pub fn is_output_of(&self, pid: u32) -> bool {
        host::writes_to(pid, &self.0)
    }
}
