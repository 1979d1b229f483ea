//! Creates pipes with a small buffer, so that a writer blocks until this process reads its output.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::ioctl_fionread;

use crate::host;
use crate::posix::poll::wait_for_any;

/// Number of bytes that a writer can write into a narrow pipe before it blocks.
const ROOM: usize = 4096;
/// Poll interval for the pipe.
const PAUSE: Duration = Duration::from_millis(1);

/// The read end of a pipe with room for one page. A writer blocks once the pipe is full.
///
/// POSIX doesn't have a call to change the size of a pipe's buffer, so
/// [`NarrowPipe::open`] fills the rest of the buffer with zero bytes.
#[derive(Debug)]
pub struct NarrowPipe {
    reader: PipeReader,
    /// Number of zero bytes in the pipe, which come before the writer's bytes.
    filled: u64,
}

impl NarrowPipe {
    /// Opens a pipe, and returns both ends.
    pub fn open() -> io::Result<(Self, PipeWriter)> {
        let (mut reader, mut writer) = io::pipe()?;
        let usual = fcntl_getfl(&writer)?;
        fcntl_setfl(&writer, usual | OFlags::NONBLOCK)?;
        loop {
            match writer.write(&[0; ROOM]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                written => written?,
            };
        }
        fcntl_setfl(&writer, usual)?;
        reader.read_exact(&mut [0; ROOM])?;
        let filled = ioctl_fionread(&reader)?;
        Ok((Self { reader, filled }, writer))
    }

    /// Waits until a process has written into the pipe, or until all writers
    /// have closed it. Returns false if neither happens within `limit`.
    pub fn wait_for_output(&self, limit: Duration) -> io::Result<bool> {
        let end = Instant::now() + limit;
        loop {
            let mut state = [PollFd::new(&self.reader, PollFlags::HUP)];
            wait_for_any(&mut state, Duration::ZERO)?;
            if state[0].revents().contains(PollFlags::HUP) || ioctl_fionread(&self.reader)? > self.filled {
                return Ok(true);
            }
            if Instant::now() >= end {
                return Ok(false);
            }
            thread::sleep(PAUSE);
        }
    }

    /// Returns true if the process's standard output is this pipe. Returns false if the system can't tell.
    #[must_use]
    pub fn is_output_of(&self, pid: u32) -> bool {
        host::writes_to(pid, &self.reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writer_blocks_after_a_page() {
        let (pipe, mut writer) = NarrowPipe::open().unwrap();
        assert!(!pipe.wait_for_output(Duration::ZERO).unwrap());
        let (sender, receiver) = std::sync::mpsc::channel();
        let writing = thread::spawn(move || {
            writer.write_all(&[1; ROOM]).unwrap();
            sender.send(()).unwrap();
            writer.write_all(&[1; ROOM])
        });
        receiver.recv().unwrap();
        assert!(pipe.wait_for_output(Duration::from_mins(1)).unwrap());
        assert!(!writing.is_finished());
        drop(pipe);
        assert_eq!(writing.join().unwrap().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn closed_pipe_ends_the_wait() {
        let (pipe, writer) = NarrowPipe::open().unwrap();
        drop(writer);
        assert!(pipe.wait_for_output(Duration::from_mins(1)).unwrap());
    }
}
