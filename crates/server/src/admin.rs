//! The one way in which pgfresh asks a server for anything in SQL: simple queries over any connection, each with a bound.
//!
//! The server trusts every client that reaches its private directory; a gateway in front of it asks for a password.

use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use pgwire::{ErrorResponse, Frame, HEADER, StartupParams, TERMINATE, columns, encode, query};

use crate::address::SOCKET;

/// Bytes that there is room for when an answer is read, and when one has filled that.
const CHUNK: usize = 8192;
const LARGE_CHUNK: usize = 64 << 10;

/// An open session. An idle one may be dropped: the server takes its end as the session's.
#[derive(Debug)]
pub struct AdminConnection<S = UnixStream> {
    stream: S,
    buffer: Vec<u8>,
    /// What of the buffer has been read from the stream and not been dealt with.
    unread: Range<usize>,
}

/// Rows of text; `None` is NULL.
pub type Rows = Vec<Vec<Option<String>>>;

/// A name as SQL wants it.
#[must_use]
pub fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as SQL wants it.
#[must_use]
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A session ended, or never came to be.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The socket failed, or the server took too long.
    #[error("could not {verb}")]
    Io {
        /// What was tried.
        verb: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
    /// The server answered with an error; the session is still good unless it was the first answer.
    #[error("{severity} {sqlstate}: {message}")]
    Server {
        /// ERROR, FATAL or PANIC.
        severity: String,
        /// Five characters. Source: the manual's appendix A.
        sqlstate: String,
        /// Its primary message.
        message: String,
        /// Its detail.
        detail: Option<String>,
    },
}

impl SessionError {
    /// The detail that the server gave.
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

    /// Whether the session is over with it.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        match self {
            Self::Io { .. } => true,
            Self::Server { severity, .. } => severity != "ERROR",
        }
    }

    /// Whether the server is about to be ready: it starts, or recovers from a crash.
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
    /// Connects to `database` as `user`, as any client does, through the socket in `directory`. No answer may take longer than `patience`.
    pub fn open(
        directory: &Path,
        user: &str,
        database: &str,
        patience: Duration,
    ) -> Result<Self, SessionError> {
        let params = StartupParams::new([("user", user), ("application_name", "pgfresh")]);
        Self::open_with(directory, &params, database, patience)
    }

    /// The same for a session that starts with `params`: for one of pgfresh's own, those of [`own_params`](crate::own_params).
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

    /// Goes on with a session that another owner has started: idle, with nothing left to read.
    pub fn adopt(stream: UnixStream, patience: Duration) -> Result<Self, SessionError> {
        bound(&stream, Some(patience)).map_err(io("bound the wait for the server"))?;
        Ok(Self::on(stream))
    }

    /// Whether the server has neither ended it nor said anything unasked.
    #[must_use]
    pub fn is_alive(&mut self) -> bool {
        self.unread.is_empty() && sys::is_silent(&self.stream)
    }

    /// Leaves the session to another owner, as [`Self::adopt`] took it.
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

    /// Starts a session with `database` over a connection on which nothing has been said yet. Who asks for a password in the
    /// clear gets `password`. The connection itself bounds how long an answer may take.
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

    /// Runs one or more statements and returns the rows of all.
    pub fn query(&mut self, sql: &str) -> Result<Rows, SessionError> {
        self.send_query(sql)?;
        self.rows()
    }

    /// Runs `COPY … TO STDOUT`, and gives `take` each row that comes.
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

    /// Holds no buffer until the next query.
    pub fn shrink(&mut self) {
        if self.unread.is_empty() {
            (self.buffer, self.unread) = (Vec::new(), 0..0);
        }
    }

    /// Says goodbye, as a driver does.
    pub fn close(mut self) -> Result<(), SessionError> {
        self.send(TERMINATE)
    }

    fn send_query(&mut self, sql: &str) -> Result<(), SessionError> {
        self.send(&query(sql.as_bytes()))
    }

    /// The rows that one query gives.
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
        // One that has ended the session has said why.
        if is_end(error.kind()) {
            while let Ok(frame) = self.next() {
                if frame.tag == b'E' {
                    return Err(ErrorResponse::read(frame.body).into());
                }
            }
        }
        Err(io("write to the server")(timed_out(error)))
    }

    /// Reads until the server is ready for more, and gives `take` what is neither an error nor that.
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

    /// The server's next frame.
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

    /// Moves what is unread to the front of the buffer, which grows if it has no room for `needed` bytes in all or was filled by
    /// the last read.
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

    /// Reads once into the room behind what is unread.
    fn read(&mut self) -> Result<(), SessionError> {
        let count = match uninterrupted(|| self.stream.read(&mut self.buffer[self.unread.end..])) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            other => other.map_err(timed_out),
        };
        self.unread.end += count.map_err(io("read the server's answer"))?;
        Ok(())
    }
}

/// No single read or write takes longer than `patience`.
fn bound(stream: &UnixStream, patience: Option<Duration>) -> io::Result<()> {
    stream.set_read_timeout(patience)?;
    stream.set_write_timeout(patience)
}

/// The error of a socket whose bound is over, as what it means.
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
