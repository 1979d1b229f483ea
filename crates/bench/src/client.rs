//! A client as a test has one: it connects, asks, copies, and does no more than it must, so that its own time hardly
//! counts.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use pgwire::{ErrorResponse, Frame, HEADER, StartupParams, encode, query};
use server::{SUPERUSER, SessionError};

/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);
/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;

/// Where a server is, or whatever stands before it.
#[derive(Debug, Clone)]
pub(crate) enum Address {
    /// A port that asks for this password, or for none.
    Tcp(SocketAddr, String),
    /// The file of a unix socket.
    Unix(PathBuf),
}

/// A session.
#[derive(Debug)]
pub(crate) struct Client {
    stream: Stream,
    buffer: Vec<u8>,
    /// What of the buffer is read and not yet understood.
    unread: Range<usize>,
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Client {
    /// A session with `database` that is ready for its first query. `parameters` go into its start-up message.
    pub(crate) fn open(
        address: &Address,
        database: &str,
        parameters: &[(&str, &str)],
    ) -> Result<Self, SessionError> {
        let stream = Stream::open(address).map_err(io("connect"))?;
        let mut client = Self { stream, buffer: Vec::new(), unread: 0..0 };
        let mut params = StartupParams { version: 0x0003_0000, parameters: Vec::new() };
        for (name, value) in [("user", SUPERUSER)].iter().chain(parameters) {
            params.parameters.extend([name.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat());
        }
        client.send(&params.startup_message(database))?;
        loop {
            let (tag, body) = client.next()?;
            match (tag, &client.buffer[body]) {
                (b'R', [0, 0, 0, 3]) => {
                    let Address::Tcp(_, password) = address else { return Err(unexpected()) };
                    let password = [password.as_bytes(), b"\0"].concat();
                    client.say(b'p', &password)?;
                }
                (b'E', body) => return Err(ErrorResponse::read(body).into()),
                (b'Z', _) => return Ok(client),
                _ => {}
            }
        }
    }

    /// Runs statements, and reads all that comes of them. Returns the bytes that were copied out.
    pub(crate) fn query(&mut self, sql: &str) -> Result<u64, SessionError> {
        self.send(&query(sql.as_bytes()))?;
        let (mut failure, mut copied) = (None, 0);
        loop {
            let (tag, body) = self.next()?;
            match tag {
                b'Z' => return failure.map_or(Ok(copied), Err),
                b'E' => failure = Some(ErrorResponse::read(&self.buffer[body]).into()),
                b'd' => copied += body.len() as u64,
                _ => {}
            }
        }
    }

    /// Holds no memory until the next query.
    pub(crate) fn rest(&mut self) {
        self.buffer = Vec::new();
        self.unread = 0..0;
    }

    /// Runs `COPY … FROM STDIN` with as many times the same bytes, whole rows, which come in messages of 8 kB as
    /// psql's do.
    pub(crate) fn copy_in(&mut self, sql: &str, rows: &[u8], times: u32) -> Result<(), SessionError> {
        self.send(&query(sql.as_bytes()))?;
        while self.next()?.0 != b'G' {}
        let message: Vec<u8> = rows.chunks(8192).flat_map(|rows| encode(b'd', rows)).collect();
        for _ in 0..times {
            self.send(&message)?;
        }
        self.say(b'c', b"")?;
        loop {
            match self.next()? {
                (b'Z', _) => return Ok(()),
                (b'E', body) => return Err(ErrorResponse::read(&self.buffer[body]).into()),
                _ => {}
            }
        }
    }

    /// Says Terminate and goes.
    pub(crate) fn close(mut self) -> Result<(), SessionError> {
        self.say(b'X', b"")
    }

    fn say(&mut self, tag: u8, body: &[u8]) -> Result<(), SessionError> {
        self.send(&encode(tag, body))
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), SessionError> {
        self.stream.write_all(bytes).map_err(io("write to the server"))
    }

    /// The next message: its tag, and where in the buffer its body is.
    fn next(&mut self) -> Result<(u8, Range<usize>), SessionError> {
        loop {
            let Range { start, end } = self.unread;
            let header = Frame::header(&self.buffer[start..end])
                .map_err(|error| io("read an answer")(io::Error::new(io::ErrorKind::InvalidData, error)))?;
            if let Some((tag, length)) = header {
                let next = start + length;
                if next <= end {
                    self.unread.start = next;
                    return Ok((tag, start + HEADER..next));
                }
                if next - start > self.buffer.len() {
                    self.buffer.resize(next - start, 0);
                }
            }
            if self.buffer.is_empty() {
                self.buffer = vec![0; CHUNK];
            }
            self.buffer.copy_within(start..end, 0);
            self.unread = 0..end - start;
            let count = self.stream.read(&mut self.buffer[end - start..]).map_err(io("read an answer"))?;
            if count == 0 {
                return Err(io("read an answer")(io::ErrorKind::UnexpectedEof.into()));
            }
            self.unread.end += count;
        }
    }
}

impl Stream {
    fn open(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(address, _) => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
                Ok(Self::Tcp(stream))
            }
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
                Ok(Self::Unix(stream))
            }
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(bytes),
            Self::Unix(stream) => stream.write_all(bytes),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

fn io(verb: &'static str) -> impl Fn(io::Error) -> SessionError {
    move |source| SessionError::Io { verb, source }
}

fn unexpected() -> SessionError {
    io("log in")(io::Error::new(io::ErrorKind::InvalidData, "asked for a password that there is none of"))
}
