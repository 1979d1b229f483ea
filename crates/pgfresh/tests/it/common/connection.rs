//! Connection to PostgreSQL, either over TCP through the gateway or over the server's own unix socket.
//!
//! The connection implements the protocol itself, so that a test can stop at any byte, and sees each ParameterStatus
//! and each ReadyForQuery. No wait takes longer than [`WAIT_TIMEOUT`].

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use pgwire::{ErrorResponse, columns, encode};

use super::WAIT_TIMEOUT;

/// Code for protocol 3.0 in a StartupMessage.
const PROTOCOL_3_0: u32 = 0x0003_0000;
/// Code in a CancelRequest.
const CANCEL_REQUEST: u32 = 80_877_102;

/// Rows of text values. `None` is NULL.
pub(crate) type Rows = Vec<Vec<Option<String>>>;

/// Address of a server or gateway.
#[derive(Debug, Clone)]
pub(crate) enum Address {
    /// Gateway that needs a password.
    Tcp {
        /// Host and port.
        address: String,
        password: String,
    },
    /// Path of the server's own socket, which doesn't need a password.
    Unix(PathBuf),
}

/// Error from the server, or a connection error with SQLSTATE 08006.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SqlError {
    pub(crate) sqlstate: String,
    pub(crate) message: String,
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.sqlstate, self.message)
    }
}

impl From<io::Error> for SqlError {
    fn from(error: io::Error) -> Self {
        Self { sqlstate: "08006".to_owned(), message: error.to_string() }
    }
}

trait Stream: Read + Write + Send {}
impl Stream for TcpStream {}
impl Stream for UnixStream {}

/// Open session.
pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    address: Address,
    /// Process ID and secret for a CancelRequest.
    key: Vec<u8>,
    /// Parameters that the server has reported, in the order of arrival.
    pub(crate) parameters: Vec<(String, String)>,
    /// Status in the last ReadyForQuery: `I`, `T` or `E`.
    pub(crate) status: char,
}

impl Connection {
    /// Opens a session with `database` as superuser `postgres`, unless `parameters` contain another user.
    pub(crate) fn open(
        address: &Address,
        database: &str,
        parameters: &[(&str, &str)],
    ) -> Result<Self, SqlError> {
        let mut connection = Self {
            stream: connect(address)?,
            address: address.clone(),
            key: Vec::new(),
            parameters: Vec::new(),
            status: '?',
        };
        let mut body = format!("database\0{database}\0");
        if !parameters.iter().any(|(name, _)| *name == "user") {
            body.push_str("user\0postgres\0");
        }
        for (name, value) in parameters {
            body.extend([*name, "\0", *value, "\0"]);
        }
        body.push('\0');
        connection.stream.write_all(&packet(PROTOCOL_3_0, body.as_bytes()))?;
        connection.collect()?;
        Ok(connection)
    }

    /// Runs one or more statements. Returns the rows of all statements, or the first error. Sends no rows when a
    /// statement requests COPY data.
    pub(crate) fn rows(&mut self, sql: &str) -> Result<Rows, SqlError> {
        self.send(b'Q', format!("{sql}\0").as_bytes())?;
        self.collect()
    }

    /// Returns the first value in the first row, or an empty string if it is NULL or there is no row.
    pub(crate) fn value(&mut self, sql: &str) -> Result<String, SqlError> {
        Ok(self.rows(sql)?.into_iter().flatten().next().flatten().unwrap_or_default())
    }

    /// Sends a message without reading a response.
    pub(crate) fn send(&mut self, tag: u8, body: &[u8]) -> Result<(), SqlError> {
        Ok(self.stream.write_all(&encode(tag, body))?)
    }

    /// Sends encoded messages without reading a response.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), SqlError> {
        Ok(self.stream.write_all(bytes)?)
    }

    /// Reads one message, and returns its tag and body.
    pub(crate) fn read(&mut self) -> Result<(u8, Vec<u8>), SqlError> {
        let mut header = [0; 5];
        self.stream.read_exact(&mut header)?;
        let [tag, length @ ..] = header;
        let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
        self.stream.read_exact(&mut body)?;
        Ok((tag, body))
    }

    /// Ends the session with a Terminate message, and waits until the server or gateway has closed the connection.
    pub(crate) fn close(mut self) {
        let _ = self.send(b'X', b"");
        self.wait_for_end();
    }

    /// Waits until the server or gateway closes the connection.
    pub(crate) fn wait_for_end(&mut self) {
        let _ = self.stream.read_to_end(&mut Vec::new());
    }

    /// Sends a CancelRequest for what this session runs.
    pub(crate) fn cancel(&self) -> Result<(), SqlError> {
        let mut stream = connect(&self.address)?;
        stream.write_all(&packet(CANCEL_REQUEST, &self.key))?;
        let _ = stream.read(&mut [0]);
        Ok(())
    }

    /// Reads up to ReadyForQuery, and authenticates if the server requests it.
    fn collect(&mut self) -> Result<Rows, SqlError> {
        let (mut rows, mut failure) = (Rows::new(), None);
        loop {
            let (tag, body) = match self.read() {
                Ok(message) => message,
                // The server's error explains more than the end of the connection.
                Err(error) => return Err(failure.unwrap_or(error)),
            };
            match tag {
                b'Z' => {
                    self.status = body.first().copied().map_or('?', char::from);
                    return failure.map_or(Ok(rows), Err);
                }
                b'E' => drop(failure.get_or_insert(server_error(&body))),
                b'D' => rows.push(columns(&body).map(text).collect()),
                b'K' => self.key = body,
                b'S' => self.parameters.extend(parameter(&body)),
                b'G' => self.send(b'f', b"no data\0")?,
                b'R' if body == [0, 0, 0, 3] => self.authenticate()?,
                _ => {}
            }
        }
    }

    fn authenticate(&mut self) -> Result<(), SqlError> {
        let Address::Tcp { password, .. } = &self.address else { panic!("the server asks for a password") };
        let body = format!("{password}\0");
        self.send(b'p', body.as_bytes())
    }
}

fn connect(address: &Address) -> io::Result<Box<dyn Stream>> {
    match address {
        Address::Tcp { address, .. } => {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(WAIT_TIMEOUT))?;
            stream.set_write_timeout(Some(WAIT_TIMEOUT))?;
            Ok(Box::new(stream))
        }
        Address::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(WAIT_TIMEOUT))?;
            stream.set_write_timeout(Some(WAIT_TIMEOUT))?;
            Ok(Box::new(stream))
        }
    }
}

/// Encodes a packet without a tag.
fn packet(code: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 8).unwrap();
    [&length.to_be_bytes(), &code.to_be_bytes(), body].concat()
}

fn text(value: Option<&[u8]>) -> Option<String> {
    value.map(|value| String::from_utf8_lossy(value).into_owned())
}

/// Returns the name and value in a ParameterStatus.
fn parameter(body: &[u8]) -> Option<(String, String)> {
    let mut words = body.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
    Some((words.next()?, words.next()?))
}

fn server_error(body: &[u8]) -> SqlError {
    let error = ErrorResponse::read(body);
    SqlError { sqlstate: error.sqlstate.into_owned(), message: error.message.into_owned() }
}
