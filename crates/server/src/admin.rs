//! SQL connections of pgfresh itself: simple queries over any stream, each with a timeout.
//!
//! The server trusts every client that reaches its private directory; a gateway in front of it asks for a password.

use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use pgwire::{ErrorResponse, Frame, HEADER, StartupParams, TERMINATE, columns, encode, query};

use crate::address::SOCKET;

/// Sizes of the buffer in bytes: at first, and after a read that has filled it.
const CHUNK: usize = 8192;
const LARGE_CHUNK: usize = 64 << 10;

/// Open session. Dropping an idle one ends it without an error in the server.
#[derive(Debug)]
pub struct AdminConnection<S = UnixStream> {
    stream: S,
    buffer: Vec<u8>,
    /// Part of the buffer that the stream has filled and no caller has read yet.
    unread: Range<usize>,
}

/// Rows of text; `None` is NULL.
pub type Rows = Vec<Vec<Option<String>>>;

/// Quotes a name for SQL.
#[must_use]
pub fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Quotes a text for SQL.
#[must_use]
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Failure of a session, or of its start.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The socket failed, or the server took too long.
    #[error("could not {verb}")]
    Io {
        /// Action that failed, after "could not".
        verb: &'static str,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The server answered with an error; the session is still good unless it was the first answer.
    #[error("{severity} {sqlstate}: {message}")]
    Server {
        /// ERROR, FATAL or PANIC.
        severity: String,
        /// Five characters. Source: the manual's appendix A.
        sqlstate: String,
        /// Primary message of the server's error.
        message: String,
        /// Detail of the server's error, if it has one.
        detail: Option<String>,
    },
}

impl SessionError {
    /// Returns the detail that the server gave.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Server { detail, .. } => detail.clone(),
            Self::Io { source, .. } if is_end(source.kind()) => {
                Some("The server has ended, or has closed the connection.".to_owned())
            }
            Self::Io { .. } => None,
        }
    }

    /// Whether the session has ended with this error.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        match self {
            Self::Io { .. } => true,
            Self::Server { severity, .. } => severity != "ERROR",
        }
    }

    /// Whether the server will be ready soon: it starts, or recovers from a crash.
    #[must_use]
    pub fn is_starting(&self) -> bool {
        match self {
            Self::Server { sqlstate, .. } => sqlstate == "57P03",
            // A postmaster that ends its processes after a crash answers no client.
            Self::Io { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof
            ),
        }
    }
}

impl AdminConnection {
    /// Connects to `database` as `user` through the socket in `directory`. Each answer must come within `patience`.
    pub fn open(
        directory: &Path,
        user: &str,
        database: &str,
        patience: Duration,
    ) -> Result<Self, SessionError> {
        let params = StartupParams::new([("user", user), ("application_name", "pgfresh")]);
        Self::open_with(directory, &params, database, patience)
    }

    /// Connects like [`Self::open`], but with the startup parameters `params`, for example [`own_params`](crate::own_params).
    pub fn open_with(
        directory: &Path,
        params: &StartupParams,
        database: &str,
        patience: Duration,
    ) -> Result<Self, SessionError> {
        let stream = UnixStream::connect(directory.join(SOCKET)).map_err(io("connect to the server"))?;
        bound(&stream, Some(patience)).map_err(io("bound the wait for the server"))?;
        Self::start(stream, params, database, None)
    }

    /// Takes over an idle session that another owner has started, with nothing left to read.
    pub fn adopt(stream: UnixStream, patience: Duration) -> Result<Self, SessionError> {
        bound(&stream, Some(patience)).map_err(io("bound the wait for the server"))?;
        Ok(Self::on(stream))
    }

    /// Whether the session is open and the server has sent nothing unasked.
    #[must_use]
    pub fn is_alive(&mut self) -> bool {
        self.unread.is_empty() && sys::is_silent(&self.stream)
    }

    /// Returns the stream of the idle session, for another owner. Reverses [`Self::adopt`].
    pub fn release(self) -> Result<UnixStream, SessionError> {
        if !self.unread.is_empty() {
            return Err(invalid("hand a session over", "the server has said more than it was asked"));
        }
        bound(&self.stream, None).map_err(io("hand a session over"))?;
        Ok(self.stream)
    }
}

impl<S: Read + Write> AdminConnection<S> {
    fn on(stream: S) -> Self {
        Self { stream, buffer: Vec::new(), unread: 0..0 }
    }

    /// Starts a session with `database` over a new connection. Answers a server's request for a clear-text password with
    /// `password`. The stream itself bounds the wait for each answer.
    pub fn start(
        stream: S,
        params: &StartupParams,
        database: &str,
        password: Option<&str>,
    ) -> Result<Self, SessionError> {
        let mut session = Self::on(stream);
        session.send(&params.startup_message(database))?;
        loop {
            let frame = session.next()?;
            match (frame.tag, frame.body, password) {
                (b'Z', ..) => return Ok(session),
                (b'E', body, _) => return Err(ErrorResponse::read(body).into()),
                (b'R', [0, 0, 0, 3], Some(password)) => {
                    session.send(&encode(b'p', &[password.as_bytes(), b"\0"].concat()))?;
                }
                (b'R', body, _) if body != [0, 0, 0, 0] => {
                    return Err(invalid("log in", "the server asks to authenticate in another way"));
                }
                _ => {}
            }
        }
    }

    /// Runs one or more statements and returns the rows of all of them.
    pub fn query(&mut self, sql: &str) -> Result<Rows, SessionError> {
        self.send_query(sql)?;
        self.rows()
    }

    /// Runs `COPY … TO STDOUT`, and passes each row to `take`.
    pub fn copy_out(&mut self, sql: &str, take: &mut dyn FnMut(&[u8])) -> Result<(), SessionError> {
        self.send_query(sql)?;
        self.collect(&mut |frame| {
            if frame.tag == b'd' {
                take(frame.body);
            }
        })
    }

    /// Runs `COPY … FROM STDIN` with data in whole `CopyData` messages, which are sent as they are.
    pub fn copy_in<'a>(
        &mut self,
        sql: &str,
        messages: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(), SessionError> {
        self.send_query(sql)?;
        // The server takes a copy that it has refused, and drops it.
        for message in messages {
            self.send(message)?;
        }
        self.send(&encode(b'c', b""))?;
        self.collect(&mut |_| ())
    }

    /// Releases the buffer until the next query.
    pub fn shrink(&mut self) {
        if self.unread.is_empty() {
            (self.buffer, self.unread) = (Vec::new(), 0..0);
        }
    }

    /// Sends `Terminate` and closes the connection, as drivers do.
    pub fn close(mut self) -> Result<(), SessionError> {
        self.send(TERMINATE)
    }

    fn send_query(&mut self, sql: &str) -> Result<(), SessionError> {
        self.send(&query(sql.as_bytes()))
    }

    /// Reads the rows of one query.
    fn rows(&mut self) -> Result<Rows, SessionError> {
        let mut rows = Rows::new();
        self.collect(&mut |frame| {
            if frame.tag == b'D' {
                let text = |value| String::from_utf8_lossy(value).into_owned();
                rows.push(columns(frame.body).map(|value| value.map(text)).collect());
            }
        })?;
        Ok(rows)
    }

    fn send(&mut self, message: &[u8]) -> Result<(), SessionError> {
        let Err(error) = self.stream.write_all(message) else { return Ok(()) };
        // A server that has ended the session has sent the reason before.
        if is_end(error.kind()) {
            while let Ok(frame) = self.next() {
                if frame.tag == b'E' {
                    return Err(ErrorResponse::read(frame.body).into());
                }
            }
        }
        Err(io("write to the server")(timed_out(error)))
    }

    /// Reads until the server is ready for a query. Passes each frame but those of errors and readiness to `take`.
    fn collect(&mut self, take: &mut dyn FnMut(Frame<'_>)) -> Result<(), SessionError> {
        let mut failure = None;
        loop {
            let frame = self.next()?;
            match frame.tag {
                b'E' => {
                    let error = SessionError::from(ErrorResponse::read(frame.body));
                    // After FATAL there is nothing more to wait for.
                    if error.is_fatal() {
                        return Err(error);
                    }
                    failure = Some(error);
                }
                b'Z' => return failure.map_or(Ok(()), Err),
                _ => take(frame),
            }
        }
    }

    /// Reads the next frame from the server.
    fn next(&mut self) -> Result<Frame<'_>, SessionError> {
        loop {
            let Range { start, end } = self.unread;
            let header = Frame::header(&self.buffer[start..end])
                .map_err(|error| invalid("understand the server's answer", error))?;
            let needed = match header {
                Some((tag, length)) if length <= end - start => {
                    self.unread.start += length;
                    return Ok(Frame { tag, body: &self.buffer[start + HEADER..start + length] });
                }
                Some((_, length)) => length,
                None => HEADER,
            };
            self.make_room(needed);
            self.read()?;
        }
    }

    /// Moves unread bytes to the front of the buffer. The buffer grows if it cannot hold `needed` bytes, or if the last read has
    /// filled it.
    fn make_room(&mut self, needed: usize) {
        let Range { start, end } = self.unread;
        let room = match self.buffer.len() {
            0 => CHUNK,
            length if end == length => LARGE_CHUNK,
            length => length,
        };
        if start > 0 {
            self.buffer.copy_within(start..end, 0);
            self.unread = 0..end - start;
        }
        self.buffer.resize(room.max(needed).max(self.buffer.len()), 0);
    }

    /// Reads once into the free part of the buffer.
    fn read(&mut self) -> Result<(), SessionError> {
        let count = match uninterrupted(|| self.stream.read(&mut self.buffer[self.unread.end..])) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            other => other.map_err(timed_out),
        };
        self.unread.end += count.map_err(io("read the server's answer"))?;
        Ok(())
    }
}

/// Limits each single read and write to `patience`.
fn bound(stream: &UnixStream, patience: Option<Duration>) -> io::Result<()> {
    stream.set_read_timeout(patience)?;
    stream.set_write_timeout(patience)
}

/// Maps the error of an expired socket timeout to `TimedOut`.
fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}

fn io(verb: &'static str) -> impl Fn(io::Error) -> SessionError {
    move |source| SessionError::Io { verb, source }
}

fn invalid(verb: &'static str, what: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> SessionError {
    io(verb)(io::Error::new(io::ErrorKind::InvalidData, what))
}

fn uninterrupted(mut read: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match read() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

impl From<ErrorResponse> for SessionError {
    fn from(error: ErrorResponse) -> Self {
        let ErrorResponse { severity, sqlstate, message, detail, .. } = error;
        Self::Server {
            severity: severity.into(),
            sqlstate: sqlstate.into(),
            message: message.into(),
            detail: detail.map(Into::into),
        }
    }
}

/// Whether a failure means that the other end is gone.
fn is_end(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    matches!(kind, BrokenPipe | ConnectionRefused | ConnectionReset | NotFound | UnexpectedEof)
}

#[cfg(test)]
mod tests;
