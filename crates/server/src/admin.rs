//! The SQL client for pgfresh's own queries. It runs simple queries over any stream, with a timeout for each
//! response.
//!
//! The server trusts every client that can reach its private directory. If a gateway is in front of it, the
//! gateway asks for a password.

use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use pgwire::{ErrorResponse, Frame, HEADER, StartupParams, TERMINATE, columns, encode, query};

use crate::address::SOCKET;

/// Sizes of the read buffer in bytes: the initial size, and the size after a read has filled the buffer.
const CHUNK: usize = 8192;
const LARGE_CHUNK: usize = 64 << 10;

/// Maximum total size of queries that are sent together, in bytes. These queries and their responses fit into the
/// socket's buffers, so neither side has to wait until the other side reads.
const TOGETHER: usize = 32 << 10;

/// An open session. Dropping an idle session ends it without an error in the server's log.
#[derive(Debug)]
pub struct AdminConnection<S = UnixStream> {
    stream: S,
    buffer: Vec<u8>,
    /// The bytes in the buffer that were read from the stream but not yet consumed.
    unread: Range<usize>,
}

/// Rows with their values as text. `None` stands for NULL.
pub type Rows = Vec<Vec<Option<String>>>;

/// Quotes a name for use in SQL.
#[must_use]
pub fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Quotes a string for use in SQL.
#[must_use]
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// An error that occurred during a session or while starting one.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The socket failed, or the server took too long to respond.
    #[error("could not {verb}")]
    Io {
        /// The action that failed, worded to follow "could not".
        verb: &'static str,
        /// The underlying I/O error.
        source: io::Error,
    },
    /// The server responded with an error. The session remains usable unless the error ended it or prevented
    /// its start.
    #[error("{severity} {sqlstate}: {message}")]
    Server {
        /// ERROR, FATAL or PANIC.
        severity: String,
        /// Five-character error code. Source: the manual's appendix A.
        sqlstate: String,
        /// The primary message of the server's error.
        message: String,
        /// Further fields of the server's error.
        notes: Box<ErrorNotes>,
    },
}

/// Fields of a server's error beyond its code and message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ErrorNotes {
    /// The detail of the server's error, if any.
    pub detail: Option<String>,
    /// The server's advice, if any.
    pub hint: Option<String>,
    /// Position of the error in the statement, in characters from 1, if the server knows it.
    pub position: Option<u32>,
}

impl SessionError {
    /// Returns the detail of the server's error, if any.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Server { notes, .. } => notes.detail.clone(),
            Self::Io { source, .. } if is_disconnect(source.kind()) => {
                Some("The server has ended, or has closed the connection.".to_owned())
            }
            Self::Io { .. } => None,
        }
    }

    /// Returns true if this error ended the session.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        match self {
            Self::Io { .. } => true,
            Self::Server { severity, .. } => severity != "ERROR",
        }
    }

    /// Returns true if the server will be ready soon, because it is starting or recovering from a crash.
    #[must_use]
    pub fn is_starting(&self) -> bool {
        match self {
            Self::Server { sqlstate, .. } => sqlstate == "57P03",
            // After a crash, the postmaster first terminates all its processes, and doesn't respond to clients in the
            // meantime.
            Self::Io { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof
            ),
        }
    }
}

impl AdminConnection {
    /// Connects to `database` as `user` through the socket in `directory`. Each response must arrive within
    /// `timeout`.
    ///
    /// # Errors
    /// Returns [`SessionError::Server`] if the server refuses the session, and [`SessionError::Io`] if the
    /// connection fails or a response takes longer than `timeout`.
    pub fn open(
        directory: &Path,
        user: &str,
        database: &str,
        timeout: Duration,
    ) -> Result<Self, SessionError> {
        let params = StartupParams::new([("user", user), ("application_name", "pgfresh")]);
        Self::open_with(directory, &params, database, timeout)
    }

    /// Like [`Self::open`], but with the startup parameters `params`, for example
    /// [`admin_params`](crate::admin_params).
    ///
    /// # Errors
    /// Returns the errors of [`Self::open`].
    pub fn open_with(
        directory: &Path,
        params: &StartupParams,
        database: &str,
        timeout: Duration,
    ) -> Result<Self, SessionError> {
        let stream = UnixStream::connect(directory.join(SOCKET)).map_err(io("connect to the server"))?;
        set_timeouts(&stream, Some(timeout)).map_err(io("bound the wait for the server"))?;
        Self::start(stream, params, database, None)
    }

    /// Takes over an idle session that other code started. All data from the server must have been read.
    /// Each response must arrive within `timeout`.
    ///
    /// # Errors
    /// Returns [`SessionError::Io`] if the stream doesn't accept a timeout.
    pub fn adopt(stream: UnixStream, timeout: Duration) -> Result<Self, SessionError> {
        set_timeouts(&stream, Some(timeout)).map_err(io("bound the wait for the server"))?;
        Ok(Self::on(stream))
    }

    /// Returns true if the session is open and idle, and false if the server has sent unexpected data.
    #[must_use]
    pub fn is_alive(&mut self) -> bool {
        self.unread.is_empty() && sys::is_idle_socket(&self.stream)
    }

    /// Returns the idle session's stream for other code to use. This is the reverse of [`Self::adopt`].
    ///
    /// # Errors
    /// Returns [`SessionError::Io`] if the session isn't idle because the server has sent unexpected data.
    pub fn release(self) -> Result<UnixStream, SessionError> {
        if !self.unread.is_empty() {
            return Err(invalid("hand a session over", "the server has said more than it was asked"));
        }
        set_timeouts(&self.stream, None).map_err(io("hand a session over"))?;
        Ok(self.stream)
    }
}

impl<S: Read + Write> AdminConnection<S> {
    fn on(stream: S) -> Self {
        Self { stream, buffer: Vec::new(), unread: 0..0 }
    }

    /// Starts a session in `database` over a new connection. Sends `password` if the server asks for a
    /// clear-text password. The stream's own timeout applies to each response.
    ///
    /// # Errors
    /// Returns [`SessionError::Server`] if the server refuses the session. Returns [`SessionError::Io`] if
    /// the connection fails, if the server asks for a different kind of authentication, or if it asks for a
    /// password and `password` is `None`.
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
                (b'E', body, _) => return Err(server_error(body)),
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

    /// Runs one or more statements and returns all their rows.
    ///
    /// # Errors
    /// Returns [`SessionError::Server`] if a statement fails. The server then skips the statements after it,
    /// and the session stays usable unless [`SessionError::is_fatal`] is true. Returns [`SessionError::Io`]
    /// if the connection fails.
    pub fn query(&mut self, sql: &str) -> Result<Rows, SessionError> {
        self.send_query(sql)?;
        self.rows()
    }

    /// Runs queries one after the other and returns the rows of the last one. Short queries are sent together,
    /// without waiting for the responses in between. Even if a query fails, the server runs the queries
    /// after it.
    ///
    /// # Errors
    /// Returns the first error of any query. After [`SessionError::Io`], or if [`SessionError::is_fatal`] is
    /// true, the session is over, and later queries might not have run.
    pub fn query_all(&mut self, queries: &[String]) -> Result<Rows, SessionError> {
        let messages: Vec<_> = queries.iter().map(|sql| query(sql.as_bytes())).collect();
        let together = messages.iter().map(Vec::len).sum::<usize>() <= TOGETHER;
        if together {
            self.send(&messages.concat())?;
        }
        let mut result = Ok(Rows::new());
        for message in &messages {
            if !together {
                self.send(message)?;
            }
            let rows = self.rows();
            if rows.as_ref().is_err_and(SessionError::is_fatal) {
                return rows;
            }
            result = result.and(rows);
        }
        result
    }

    /// Runs `COPY … TO STDOUT` and passes each row to `take`.
    ///
    /// # Errors
    /// Returns the errors of [`Self::query`]. `take` may have received some rows by then.
    pub fn copy_out(&mut self, sql: &str, take: &mut dyn FnMut(&[u8])) -> Result<(), SessionError> {
        self.send_query(sql)?;
        self.read_frames(&mut |frame| {
            if frame.tag == b'd' {
                take(frame.body);
            }
        })
    }

    /// Runs `COPY … FROM STDIN`. The data consists of complete `CopyData` messages, which are sent unchanged.
    ///
    /// # Errors
    /// Returns [`SessionError::Server`] if the server rejects the copy or a row. Returns [`SessionError::Io`]
    /// if the connection fails.
    pub fn copy_in<'a>(
        &mut self,
        sql: &str,
        messages: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(), SessionError> {
        self.send_query(sql)?;
        // Send the data even if the server has rejected the copy, because the server then discards it.
        for message in messages {
            self.send(message)?;
        }
        self.send(&encode(b'c', b""))?;
        self.read_frames(&mut |_| ())
    }

    /// Sends messages of the extended protocol, the last of which must be Sync. Passes the responses other than
    /// errors to `take`.
    ///
    /// # Errors
    /// Returns the errors of [`Self::query`]. `take` may have received some responses by then.
    pub fn exchange(&mut self, messages: &[u8], take: &mut dyn FnMut(Frame<'_>)) -> Result<(), SessionError> {
        self.send(messages)?;
        self.read_frames(take)
    }

    /// Frees the buffer until the next query.
    pub fn shrink(&mut self) {
        if self.unread.is_empty() {
            (self.buffer, self.unread) = (Vec::new(), 0..0);
        }
    }

    /// Sends `Terminate` and closes the connection, as drivers do.
    ///
    /// # Errors
    /// Returns [`SessionError::Io`] if the connection had already failed.
    pub fn close(mut self) -> Result<(), SessionError> {
        self.send(TERMINATE)
    }

    fn send_query(&mut self, sql: &str) -> Result<(), SessionError> {
        self.send(&query(sql.as_bytes()))
    }

    /// Reads the rows of one query.
    fn rows(&mut self) -> Result<Rows, SessionError> {
        let mut rows = Rows::new();
        self.read_frames(&mut |frame| {
            if frame.tag == b'D' {
                let text = |value| String::from_utf8_lossy(value).into_owned();
                rows.push(columns(frame.body).map(|value| value.map(text)).collect());
            }
        })?;
        Ok(rows)
    }

    fn send(&mut self, message: &[u8]) -> Result<(), SessionError> {
        let Err(error) = self.stream.write_all(message) else { return Ok(()) };
        // If the server ended the session, it sent the reason before that, so look for it.
        if is_disconnect(error.kind()) {
            while let Ok(frame) = self.next() {
                if frame.tag == b'E' {
                    return Err(server_error(frame.body));
                }
            }
        }
        Err(io("write to the server")(timed_out(error)))
    }

    /// Reads until the server is ready for the next query, passing all frames other than errors and
    /// `ReadyForQuery` to `take`.
    fn read_frames(&mut self, take: &mut dyn FnMut(Frame<'_>)) -> Result<(), SessionError> {
        let mut failure = None;
        loop {
            let frame = self.next()?;
            match frame.tag {
                b'E' => {
                    let error = server_error(frame.body);
                    // The server sends nothing after a FATAL error.
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
                .map_err(|error| invalid("parse the server's response", error))?;
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

    /// Moves the unread bytes to the front of the buffer. The buffer grows if it can't hold `needed` bytes,
    /// or if the last read filled it.
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
        self.unread.end += count.map_err(io("read the server's response"))?;
        Ok(())
    }
}

/// Sets `timeout` for each read and write.
fn set_timeouts(stream: &UnixStream, timeout: Option<Duration>) -> io::Result<()> {
    stream.set_read_timeout(timeout)?;
    stream.set_write_timeout(timeout)
}

/// Turns the error of an expired socket timeout into `TimedOut`.
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

/// Reads the body of an error message.
fn server_error(body: &[u8]) -> SessionError {
    let ErrorResponse { severity, sqlstate, message, detail, hint } = ErrorResponse::read(body);
    let mut position = None;
    for (code, value) in ErrorResponse::fields(body) {
        if code == b'P' {
            position = std::str::from_utf8(value).ok().and_then(|value| value.parse().ok());
        }
    }
    SessionError::Server {
        severity: severity.into(),
        sqlstate: sqlstate.into(),
        message: message.into(),
        notes: Box::new(ErrorNotes { detail: detail.map(Into::into), hint: hint.map(Into::into), position }),
    }
}

/// Returns true if an error means that the other end of the connection is gone.
fn is_disconnect(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    matches!(kind, BrokenPipe | ConnectionRefused | ConnectionReset | NotFound | UnexpectedEof)
}

#[cfg(test)]
mod tests;
