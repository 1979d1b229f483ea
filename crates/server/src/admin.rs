//! One session with a server of ours: simple queries over its unix socket, each with a bound.
//!
//! The server trusts every client that reaches its private directory, so there is no authentication here, and no parameters.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use pgwire::{ErrorResponse, Frame, HEADER, StartupParams, columns, encode, query};

use crate::address::SOCKET;

/// Bytes that there is room for at least when an answer is read.
const CHUNK: usize = 8192;

/// An open session. An idle one may be dropped: the server takes its end as the session's.
#[derive(Debug)]
pub struct AdminConnection {
    stream: UnixStream,
    buffer: Vec<u8>,
    /// Bytes of the buffer that have been dealt with.
    read: usize,
}

/// Rows of text; `None` is NULL.
pub type Rows = Vec<Vec<Option<String>>>;

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
    /// Connects to `database` as `user` through the socket in `directory`. No answer may take longer than `patience`.
    pub fn open(
        directory: &Path,
        user: &str,
        database: &str,
        patience: Duration,
    ) -> Result<Self, SessionError> {
        let io = |verb| move |source| SessionError::Io { verb, source };
        let stream = UnixStream::connect(directory.join(SOCKET)).map_err(io("connect to the server"))?;
        let mut session = Self::adopt(stream, patience)?;
        let parameters = [b"user\0", user.as_bytes(), b"\0application_name\0pgfresh\0"].concat();
        let params = StartupParams { version: 0x0003_0000, parameters };
        session.send(&params.startup_message(database))?;
        session.collect(&mut |_| ())?;
        Ok(session)
    }

    /// Goes on with a session that another owner has started: idle, with nothing left to read.
    pub fn adopt(stream: UnixStream, patience: Duration) -> Result<Self, SessionError> {
        let io = |verb| move |source| SessionError::Io { verb, source };
        stream.set_read_timeout(Some(patience)).map_err(io("bound the wait for the server"))?;
        Ok(Self { stream, buffer: Vec::new(), read: 0 })
    }

    /// Whether the server has neither ended it nor said anything unasked.
    #[must_use]
    pub fn is_alive(&mut self) -> bool {
        self.read == self.buffer.len() && sys::is_silent(&self.stream)
    }

    /// Leaves the session to another owner, as [`Self::adopt`] took it.
    pub fn release(self) -> Result<UnixStream, SessionError> {
        let io = |source| SessionError::Io { verb: "hand a session over", source };
        if self.read < self.buffer.len() {
            return Err(io(io::Error::new(
                io::ErrorKind::InvalidData,
                "the server has said more than it was asked",
            )));
        }
        self.stream.set_read_timeout(None).map_err(io)?;
        Ok(self.stream)
    }

    /// Runs one or more statements and returns the rows of all.
    pub fn query(&mut self, sql: &str) -> Result<Rows, SessionError> {
        self.send_query(sql)?;
        self.rows()
    }

    /// Sends several queries at once, each a transaction of its own, and returns the rows of all. Their answers but for
    /// the last one's must fit into the socket's buffers.
    ///
    /// # Errors
    /// The first one's that failed; the others were run.
    pub fn queries(&mut self, sql: &[&str]) -> Result<Rows, SessionError> {
        let message: Vec<u8> = sql.iter().flat_map(|sql| query(sql.as_bytes())).collect();
        self.send(&message)?;
        let (mut rows, mut failure) = (Rows::new(), None);
        for _ in sql {
            match self.rows() {
                Ok(mut more) => rows.append(&mut more),
                Err(error @ SessionError::Server { .. }) => failure = failure.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        failure.map_or(Ok(rows), Err)
    }

    /// Runs `COPY … TO STDOUT` and returns what it gives.
    pub fn copy_out(&mut self, sql: &str) -> Result<Vec<u8>, SessionError> {
        self.send_query(sql)?;
        let mut copied = Vec::new();
        self.collect(&mut |frame| {
            if frame.tag == b'd' {
                copied.extend_from_slice(frame.body);
            }
        })?;
        Ok(copied)
    }

    /// Runs `COPY … FROM STDIN` with `data`.
    pub fn copy_in(&mut self, sql: &str, data: &[u8]) -> Result<(), SessionError> {
        self.send_query(sql)?;
        // The server takes a copy that it has refused, and drops it.
        self.send(&[encode(b'd', data), encode(b'c', b"")].concat())?;
        self.collect(&mut |_| ())
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
        self.stream
            .write_all(message)
            .map_err(|source| SessionError::Io { verb: "write to the server", source })
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
        let io = |verb, source| SessionError::Io { verb, source };
        loop {
            let header = Frame::header(&self.buffer[self.read..]).map_err(|error| {
                io("understand the server's answer", io::Error::new(io::ErrorKind::InvalidData, error))
            })?;
            let missing = match header {
                Some((tag, length)) if self.buffer.len() - self.read >= length => {
                    let body = self.read + HEADER..self.read + length;
                    self.read += length;
                    return Ok(Frame { tag, body: &self.buffer[body] });
                }
                Some((_, length)) => length,
                None => CHUNK,
            };
            self.buffer.drain(..self.read);
            self.read = 0;
            let have = self.buffer.len();
            self.buffer.resize(missing.max(have + CHUNK), 0);
            let count = uninterrupted(|| self.stream.read(&mut self.buffer[have..]));
            self.buffer.truncate(have + count.as_ref().copied().unwrap_or(0));
            match count {
                Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    Err(io::ErrorKind::TimedOut.into())
                }
                other => other,
            }
            .map_err(|source| io("read the server's answer", source))?;
        }
    }
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
