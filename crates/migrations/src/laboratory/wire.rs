//! Sends a client's messages unchanged, and waits for each response with a short timeout.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use pgwire::{Frame, StartupParams};
use server::{AdminConnection, SessionError};

/// Timeout for starting a session, and for sending a message.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A connection to the laboratory's server.
#[derive(Debug)]
pub(super) struct Wire {
    stream: UnixStream,
    /// Received bytes that haven't been processed yet.
    buffer: Vec<u8>,
}

impl Wire {
    /// Starts a session. Returns it and its backend's pid, which the query `pid` returns.
    pub(super) fn connect(
        folder: &Path,
        params: &StartupParams,
        database: &str,
        pid: &str,
    ) -> Result<(Self, u32), SessionError> {
        let mut session = AdminConnection::open_with(folder, params, database, TIMEOUT)?;
        let rows = session.query(pid)?;
        let pid = rows.first().and_then(|row| row.first()?.as_ref()?.parse().ok()).unwrap_or(0);
        let stream = session.release()?;
        stream.set_write_timeout(Some(TIMEOUT)).map_err(io_error("bound the wait for the server"))?;
        Ok((Self { stream, buffer: Vec::new() }, pid))
    }

    pub(super) fn send(&mut self, messages: &[u8]) -> Result<(), SessionError> {
        self.stream.write_all(messages).map_err(io_error("write to the server"))
    }

    /// Calls `take` with the next message. Returns `None` if none arrives within `wait`.
    pub(super) fn next<T>(
        &mut self,
        wait: Duration,
        take: impl FnOnce(Frame<'_>) -> T,
    ) -> Result<Option<T>, SessionError> {
        let malformed = |_| io_error("parse the server's response")(io::ErrorKind::InvalidData.into());
        if Frame::first(&self.buffer).map_err(malformed)?.is_none() && !self.read(wait)? {
            return Ok(None);
        }
        let Some((frame, length)) = Frame::first(&self.buffer).map_err(malformed)? else { return Ok(None) };
        let taken = take(frame);
        self.buffer.drain(..length);
        Ok(Some(taken))
    }

    /// Reads what the server has sent. Returns false if nothing arrives within `wait`.
    fn read(&mut self, wait: Duration) -> Result<bool, SessionError> {
        let mut chunk = [0; 16 << 10];
        self.stream.set_read_timeout(Some(wait)).map_err(io_error("bound the wait for the server"))?;
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(io_error("read the server's response")(io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => {
                self.buffer.extend_from_slice(&chunk[..count]);
                Ok(true)
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Ok(false),
                io::ErrorKind::Interrupted => Ok(true),
                _ => Err(io_error("read the server's response")(error)),
            },
        }
    }
}

fn io_error(verb: &'static str) -> impl Fn(io::Error) -> SessionError {
    move |source| SessionError::Io { verb, source }
}
