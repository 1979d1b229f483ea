//! Accepts clients on a TCP port and a unix socket.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lease::ServerRole;
use tokio::io::Interest;

use crate::closing::{Closing, closed};
use crate::session::serve;
use crate::state::{ConnectionHandle, GatewayState};
use crate::stream::{Socket, watch};

/// Pause after a failed attempt to accept a connection, for example for lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// A listening socket. Dropping it removes the file of a unix socket.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(listener) => listener.accept().and_then(|(stream, _)| Socket::tcp(stream)),
            Self::Unix(listener, _) => listener.accept().and_then(|(stream, _)| Socket::unix(stream)),
        }
    }

    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => listener.set_nonblocking(true),
            Self::Unix(listener, _) => listener.set_nonblocking(true),
        }
    }

    /// Accepts connections to servers with this role and serves them until the gateway closes.
    pub(crate) async fn run(self, role: ServerRole, state: Arc<GatewayState>, mut closing: Closing) {
        let for_sessions = closing.clone();
        tokio::select! {
            () = closed(&mut closing) => {}
            _ = self.accept_all(role, &state, for_sessions) => {}
        }
    }

    async fn accept_all(
        self,
        role: ServerRole,
        state: &Arc<GatewayState>,
        closing: Closing,
    ) -> io::Result<()> {
        self.set_nonblocking()?;
        let listener = watch(self, Interest::READABLE)?;
        loop {
            match listener.readable().await?.try_io(|listener| listener.get_ref().accept()) {
                Ok(Ok(socket)) => {
                    let presence = ConnectionHandle::new(closing.clone(), &state.connections);
                    tokio::spawn(serve(socket, role, Arc::clone(state), presence));
                }
                // Either the client has already left or too many files are open. Both problems are temporary.
                Ok(Err(_)) => tokio::time::sleep(PAUSE).await,
                Err(_would_block) => {}
            }
        }
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Self::Tcp(listener) => listener.as_raw_fd(),
            Self::Unix(listener, _) => listener.as_raw_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self
            && let Err(error) = fs::remove_file(&path)
        {
            tracing::debug!(%error, path = %path.display(), "could not remove a socket");
        }
    }
}
