//! Wraps a client or server connection over TCP (with or without TLS) or over a unix socket.
//!
//! Tokio's own streams always watch both directions of a socket. The kernel reports a unix socket as writable whenever
//! the other side has read a message, so each message would wake its sender once more for nothing. `Stream` therefore
//! watches only the reading direction. While a write would block, it watches the writing direction through a second
//! descriptor.

use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use lease::ClientLink;

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, Interest, ReadBuf};
use tokio::time::{sleep, timeout};

use crate::certificate::ServerCertificate;
use crate::notices::{NoticeSender, Notices, notices};
use crate::tls::TlsSocket;

/// Size of a unix socket's send buffer in bytes, before the kernel doubles it. Source: the kernel's default limit
/// (`wmem_max`), which an administrator may have changed.
const UNIX_BUFFER: usize = 212_992;

/// Initial and maximum interval between checks whether a client that has closed its writing side still reads.
const FIRST_POLL_PAUSE: Duration = Duration::from_millis(1);
const MAX_POLL_PAUSE: Duration = Duration::from_millis(200);

/// How long to wait for a client to read its last message.
const LAST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(1);

/// A non-blocking socket of one of the supported kinds.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Tls(Box<TlsSocket>),
    Unix(UnixStream),
}

impl Socket {
    /// Wraps a connection from a TCP listener. Small messages are sent without delay.
    pub(crate) fn tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self::Tcp(stream))
    }

    /// Wraps a connection over a unix socket.
    pub(crate) fn unix(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        // The kernel reports the socket as writable only once three quarters of the buffer are free. With a large
        // buffer, the other side then still has enough to read until our next write.
        sys::set_send_buffer(&stream, UNIX_BUFFER)?;
        Ok(Self::Unix(stream))
    }

    /// Reads available bytes. Returns `WouldBlock` if there are none.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        uninterrupted(|| match self {
            Self::Tcp(stream) => (&mut &*stream).read(buffer),
            Self::Tls(socket) => socket.receive(buffer),
            Self::Unix(stream) => (&mut &*stream).read(buffer),
        })
    }

    /// Writes as many bytes as there is room for. Returns `WouldBlock` if nothing fits. The caller must then retry with
    /// the same bytes.
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        uninterrupted(|| match self {
            Self::Tcp(stream) => (&mut &*stream).write(bytes),
            Self::Tls(socket) => socket.send(bytes),
            Self::Unix(stream) => (&mut &*stream).write(bytes),
        })
    }

    /// Closes the writing side. Returns `WouldBlock` if there is no room for the last TLS record.
    pub(crate) fn finish(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Self::Tls(socket) => socket.finish(),
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }

    /// Closes the connection with a TCP reset. Unix sockets don't have resets, so they are just closed.
    pub(crate) fn reset(self) -> io::Result<()> {
        match &self {
            Self::Tcp(stream) => sys::reset_now(stream),
            Self::Tls(socket) => sys::reset_now(socket.stream()),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        }
    }

    /// Returns a handle through which the lease can check and close the client's connection, along with the notices for
    /// the session. There is no handle if the system has run out of file descriptors.
    pub(crate) fn link(&self) -> (Option<Arc<SocketLink>>, Notices) {
        let (sender, notices) = notices();
        let link = self.duplicate().ok().map(|connection| SocketLink { connection, notices: sender });
        (link.map(Arc::new), notices)
    }

    /// Duplicates the descriptor, for watching the connection rather than for reading or writing.
    fn duplicate(&self) -> io::Result<OwnedFd> {
        self.as_fd().try_clone_to_owned()
    }
}

/// A lease's handle for the client's connection.
#[derive(Debug)]
pub(crate) struct SocketLink {
    connection: OwnedFd,
    pub(crate) notices: NoticeSender,
}

impl ClientLink for SocketLink {
    fn is_gone(&self) -> bool {
        sys::is_closed_by_peer(&self.connection)
    }

    fn close(&self) {
        self.notices.close();
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Tls(socket) => socket.stream().as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

fn uninterrupted(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// A connection registered with the current runtime.
#[derive(Debug)]
pub struct Stream {
    socket: AsyncFd<Socket>,
    /// Watches for room in the send buffer while a write is waiting for it.
    room: Option<AsyncFd<OwnedFd>>,
    /// Bytes that were read too early. Reads return these bytes first.
    unread: Vec<u8>,
}

impl Stream {
    /// Registers `socket` with the current runtime. Reads return `unread` first.
    pub(crate) fn new(socket: Socket, mut unread: Vec<u8>) -> io::Result<Self> {
        if let Socket::Tls(socket) = &socket {
            socket.take_decrypted(&mut unread);
        }
        Ok(Self { socket: watch(socket, Interest::READABLE)?, room: None, unread })
    }

    /// Returns the local and the remote address of a TCP connection, or `None` over a unix socket.
    #[must_use]
    pub fn tcp_ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        let stream = match self.socket() {
            Socket::Tcp(stream) => stream,
            Socket::Tls(socket) => socket.stream(),
            Socket::Unix(_) => return None,
        };
        Some((stream.local_addr().ok()?, stream.peer_addr().ok()?))
    }

    /// Returns a watcher that notices when the client leaves, even while the connection is in use.
    ///
    /// # Errors
    /// Returns the system's error if the socket can't be duplicated or watched.
    pub fn disconnect_watcher(&self) -> io::Result<DisconnectWatcher> {
        let connection = watch(self.socket().duplicate()?, Interest::READABLE)?;
        Ok(DisconnectWatcher { connection, ends: self.tcp_ends() })
    }

    /// Returns true if the connection uses TLS, so that no machine between the two sides can read it.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.tls().is_some()
    }

    /// Returns the TLS state of the connection, if it uses TLS.
    pub(crate) fn tls(&self) -> Option<&TlsSocket> {
        match self.socket() {
            Socket::Tls(socket) => Some(socket),
            Socket::Tcp(_) | Socket::Unix(_) => None,
        }
    }

    /// Starts TLS on a TCP connection, leaving other kinds of connections unchanged. `read` contains handshake bytes
    /// that were read too early.
    pub(crate) fn encrypted(self, certificate: &Arc<ServerCertificate>, read: &[u8]) -> io::Result<Self> {
        let (socket, unread) = self.into_parts();
        match socket {
            Socket::Tcp(stream) => {
                let socket = TlsSocket::accept(stream, certificate, read)?;
                Self::new(Socket::Tls(Box::new(socket)), unread)
            }
            other => Self::new(other, unread),
        }
    }

    /// Deregisters the socket and returns it with the unread bytes.
    pub(crate) fn into_parts(self) -> (Socket, Vec<u8>) {
        (self.socket.into_inner(), self.unread)
    }

    /// Inserts `bytes` before all unread bytes.
    pub(crate) fn with_unread(mut self, mut bytes: Vec<u8>) -> Self {
        bytes.append(&mut self.unread);
        self.unread = bytes;
        self
    }

    /// Inserts `bytes` before all unread bytes.
    pub(crate) fn put_back(&mut self, bytes: &[u8]) {
        self.unread.splice(..0, bytes.iter().copied());
    }

    /// Returns the socket, for non-blocking calls.
    pub(crate) fn socket(&self) -> &Socket {
        self.socket.get_ref()
    }

    /// Reads at least one byte. Returns 0 at the end of the stream.
    pub(crate) fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if !self.unread.is_empty() {
            let count = buffer.len().min(self.unread.len());
            buffer[..count].copy_from_slice(&self.unread[..count]);
            self.unread.drain(..count);
            if self.unread.is_empty() {
                self.unread = Vec::new();
            }
            return Poll::Ready(Ok(count));
        }
        loop {
            let mut guard = ready!(self.socket.poll_read_ready(context))?;
            match guard.get_inner().receive(buffer) {
                // After a short read the socket is empty, so the next call would block. With TLS, however, a short read
                // just means the end of a record.
                Ok(count) if 0 < count && count < buffer.len() && !self.is_encrypted() => {
                    guard.clear_ready();
                    return Poll::Ready(Ok(count));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                other => return Poll::Ready(other),
            }
        }
    }

    /// Writes at least one byte.
    pub(crate) fn poll_send(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let sent = ready!(self.poll_with_room(context, |socket| socket.send(bytes)));
        // After a short write, there may be no room for the rest.
        if !matches!(sent, Ok(count) if count < bytes.len()) {
            self.room = None;
        }
        Poll::Ready(sent)
    }

    /// Calls `write` whenever there is room, until it no longer blocks.
    fn poll_with_room<T>(
        &mut self,
        context: &mut Context<'_>,
        write: impl Fn(&Socket) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        loop {
            let guard = match &self.room {
                Some(room) => Some(ready!(room.poll_write_ready(context))?),
                None => None,
            };
            match write(self.socket.get_ref()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => match guard {
                    Some(mut guard) => guard.clear_ready(),
                    None => self.room = Some(self.watch_for_room()?),
                },
                other => return Poll::Ready(other),
            }
        }
    }

    /// Sends a last message, closes the writing side and waits briefly for the client to read the message.
    pub(crate) async fn send_and_close(mut self, message: &[u8]) {
        let farewell = async {
            self.write_all(message).await?;
            self.shutdown().await?;
            // Read all remaining bytes: closing the socket with unread bytes would reset the connection, and the client
            // could lose the message.
            tokio::io::copy(&mut self, &mut tokio::io::sink()).await
        };
        if let Err(error) = timeout(LAST_MESSAGE_TIMEOUT, farewell).await.map_err(io::Error::from).flatten() {
            tracing::debug!(%error, "a client did not wait for the last message");
        }
    }

    fn watch_for_room(&self) -> io::Result<AsyncFd<OwnedFd>> {
        watch(self.socket.get_ref().duplicate()?, Interest::WRITABLE)
    }
}

/// Finds out whether a client has disconnected or has only closed its writing side.
#[derive(Debug)]
pub struct DisconnectWatcher {
    connection: AsyncFd<OwnedFd>,
    ends: Option<(SocketAddr, SocketAddr)>,
}

impl DisconnectWatcher {
    /// Waits until the client closes its writing side or disconnects completely.
    pub async fn writing_side_closed(&self) {
        // Ask the kernel every time, because it might know this before the runtime does.
        poll_fn(|context| {
            while !sys::is_closed_by_peer(&self.connection)
                && let Ok(mut guard) = ready!(self.connection.poll_read_ready(context))
            {
                guard.clear_ready();
            }
            Poll::Ready(())
        })
        .await;
    }

    /// Waits until the client, having closed its writing side, disconnects completely. For clients on other machines,
    /// this returns immediately, because the kernel doesn't know whether they still read.
    pub async fn disconnected(&self) {
        let mut pause = FIRST_POLL_PAUSE;
        while !sys::is_hung_up(&self.connection)
            && self.ends.is_none_or(|(local, remote)| sys::is_open_on_this_machine(remote, local))
        {
            sleep(pause).await;
            pause = (pause * 2).min(MAX_POLL_PAUSE);
        }
    }
}

/// Registers a descriptor with the current runtime.
#[allow(
    deprecated,
    reason = "its successor is unsafe, for types whose descriptor changes: those of `std` keep theirs"
)]
pub(crate) fn watch<T: AsRawFd>(inner: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(inner, interest)
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let count = ready!(self.poll_receive(context, buffer.initialize_unfilled()))?;
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_with_room(context, Socket::finish)
    }
}
