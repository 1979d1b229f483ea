//! One session with a server of ours: simple queries over its unix socket, each with a bound.
//!
//! The server trusts whoever reaches its private directory, so there is no authentication here, and no parameters.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::{ErrorFields, Message};
use postgres_protocol::message::frontend;

use crate::address::SOCKET;

/// An open session. An idle one may be dropped: the server takes its end as the session's.
#[derive(Debug)]
pub struct Session {
    stream: UnixStream,
    buffer: BytesMut,
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
            // A postmaster that ends its processes after a crash answers nobody.
            Self::Io { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof
            ),
        }
    }
}

impl Session {
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
        let mut message = BytesMut::new();
        let parameters = [("user", user), ("database", database), ("application_name", "pgfresh")];
        frontend::startup_message(parameters, &mut message).map_err(io("word a start-up message"))?;
        session.send(&message)?;
        session.collect(&mut |_| Ok(()))?;
        Ok(session)
    }

    /// Goes on with a session that somebody else has started: idle, with nothing left to read.
    pub fn adopt(stream: UnixStream, patience: Duration) -> Result<Self, SessionError> {
        let io = |verb| move |source| SessionError::Io { verb, source };
        stream.set_read_timeout(Some(patience)).map_err(io("bound the wait for the server"))?;
        Ok(Self { stream, buffer: BytesMut::with_capacity(8192) })
    }

    /// Whether the server has neither ended it nor said anything unasked.
    #[must_use]
    pub fn is_alive(&mut self) -> bool {
        self.buffer.is_empty() && is_silent(&self.stream)
    }

    /// Leaves the session to somebody else, as [`Self::adopt`] took it.
    pub fn release(self) -> Result<UnixStream, SessionError> {
        let io = |source| SessionError::Io { verb: "hand a session over", source };
        if !self.buffer.is_empty() {
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
        let mut message = BytesMut::new();
        for sql in sql {
            frontend::query(sql, &mut message).map_err(unworded)?;
        }
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
        self.collect(&mut |message| {
            if let Message::CopyData(data) = message {
                copied.extend_from_slice(data.data());
            }
            Ok(())
        })?;
        Ok(copied)
    }

    /// Runs `COPY … FROM STDIN` with `data`.
    pub fn copy_in(&mut self, sql: &str, data: &[u8]) -> Result<(), SessionError> {
        self.send_query(sql)?;
        let mut message = BytesMut::new();
        let word = |source| SessionError::Io { verb: "word a copy", source };
        frontend::CopyData::new(data).map_err(word)?.write(&mut message);
        frontend::copy_done(&mut message);
        // The server takes a copy that it has refused, and drops it.
        self.send(&message)?;
        self.collect(&mut |_| Ok(()))
    }

    fn send_query(&mut self, sql: &str) -> Result<(), SessionError> {
        let mut message = BytesMut::new();
        frontend::query(sql, &mut message).map_err(unworded)?;
        self.send(&message)
    }

    /// The rows that one query gives.
    fn rows(&mut self) -> Result<Rows, SessionError> {
        let mut rows = Rows::new();
        self.collect(&mut |message| {
            if let Message::DataRow(row) = message {
                rows.push(columns(&row).map_err(malformed)?);
            }
            Ok(())
        })?;
        Ok(rows)
    }

    fn send(&mut self, message: &[u8]) -> Result<(), SessionError> {
        self.stream
            .write_all(message)
            .map_err(|source| SessionError::Io { verb: "write to the server", source })
    }

    /// Reads until the server is ready for more, and gives `take` what is neither an error nor that.
    fn collect(
        &mut self,
        take: &mut dyn FnMut(Message) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        let mut failure = None;
        loop {
            match self.next()? {
                Message::ErrorResponse(body) => {
                    let error = server_error(body.fields()).map_err(malformed)?;
                    // After FATAL there is nothing more to wait for.
                    if matches!(&error, SessionError::Server { severity, .. } if severity != "ERROR") {
                        return Err(error);
                    }
                    failure = Some(error);
                }
                Message::ReadyForQuery(_) => return failure.map_or(Ok(()), Err),
                message => take(message)?,
            }
        }
    }

    fn next(&mut self) -> Result<Message, SessionError> {
        loop {
            if let Some(message) = Message::parse(&mut self.buffer).map_err(malformed)? {
                return Ok(message);
            }
            let mut chunk = [0; 8192];
            let count = match self.stream.read(&mut chunk) {
                Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    Err(io::ErrorKind::TimedOut.into())
                }
                other => other,
            };
            match count {
                Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(SessionError::Io { verb: "read the server's answer", source }),
            }
        }
    }
}

/// Whether a failure means that there is nobody at the other end.
fn is_end(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    matches!(kind, BrokenPipe | ConnectionRefused | ConnectionReset | NotFound | UnexpectedEof)
}

/// Whether a connection is open and there is nothing to read.
#[must_use]
pub fn is_silent(stream: &UnixStream) -> bool {
    let mut byte = [0];
    let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
    matches!(rustix::net::recv(stream, &mut byte, flags), Err(rustix::io::Errno::AGAIN))
}

fn unworded(source: io::Error) -> SessionError {
    SessionError::Io { verb: "word a query", source }
}

fn malformed(source: io::Error) -> SessionError {
    SessionError::Io { verb: "understand the server's answer", source }
}

fn columns(row: &postgres_protocol::message::backend::DataRowBody) -> io::Result<Vec<Option<String>>> {
    let bytes = row.buffer();
    row.ranges()
        .map(|range| Ok(range.map(|range| String::from_utf8_lossy(&bytes[range]).into_owned())))
        .collect()
}

fn server_error(mut fields: ErrorFields<'_>) -> io::Result<SessionError> {
    let (mut severity, mut sqlstate, mut message, mut detail) =
        (String::new(), String::new(), String::new(), None);
    while let Some(field) = fields.next()? {
        let value = String::from_utf8_lossy(field.value_bytes()).into_owned();
        match field.type_() {
            b'V' => severity = value,
            b'C' => sqlstate = value,
            b'M' => message = value,
            b'D' => detail = Some(value),
            _ => {}
        }
    }
    Ok(SessionError::Server { severity, sqlstate, message, detail })
}
