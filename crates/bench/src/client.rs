//! A client as a test has one: over TCP or a unix socket, with a password where one is asked for.

use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use pgwire::StartupParams;
use server::{AdminConnection, SUPERUSER, SessionError};

/// How long an answer may take.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);

/// Where a server is, or whatever stands before it.
#[derive(Debug, Clone)]
pub(crate) enum Address {
    /// A port that asks for this password, or for none.
    Tcp(SocketAddr, String),
    /// The file of a unix socket.
    Unix(PathBuf),
}

/// A session.
pub(crate) type Client = AdminConnection<Box<dyn Stream>>;

/// A connection of either kind.
pub(crate) trait Stream: Read + Write + Send + Debug {}
impl Stream for TcpStream {}
impl Stream for UnixStream {}

impl Address {
    /// A session with `database` that is ready for its first query. `parameters` go into its start-up message.
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
                stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
                Ok((Box::new(stream), Some(password)))
            }
            Self::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
                Ok((Box::new(stream), None))
            }
        }
    }
}
