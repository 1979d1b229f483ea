//! Implements a client that behaves like a test's client: it connects over TCP or a Unix socket and sends its password
//! if the server requests one.

use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use pgwire::StartupParams;
use server::{AdminConnection, SUPERUSER, SessionError};

/// Timeout for a response.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_mins(1);

/// The address of a server, a gateway or a proxy.
#[derive(Debug, Clone)]
pub(crate) enum Address {
    /// A TCP address, with the password in case the server asks for it.
    Tcp(SocketAddr, String),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// A session over TCP or a Unix socket.
pub(crate) type Client = AdminConnection<Box<dyn Stream>>;

/// A connection over TCP or a Unix socket.
pub(crate) trait Stream: Read + Write + Send + Debug {}
impl Stream for TcpStream {}
impl Stream for UnixStream {}

impl Address {
    /// Opens a session with `database` and waits until it is ready for queries. `parameters` are added to the startup
    /// message.
    pub(crate) fn connect(
        &self,
        database: &str,
        parameters: &[(&str, &str)],
    ) -> Result<Client, SessionError> {
        let (stream, password) =
            self.open().map_err(|source| SessionError::Io { verb: "connect", source })?;
        let params = StartupParams::new([("user", SUPERUSER)].iter().chain(parameters).copied());
        Client::start(stream, &params, database, password)
    }

    fn open(&self) -> io::Result<(Box<dyn Stream>, Option<&str>)> {
        match self {
            Self::Tcp(address, password) => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
                Ok((Box::new(stream), Some(password)))
            }
            Self::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
                Ok((Box::new(stream), None))
            }
        }
    }
}
