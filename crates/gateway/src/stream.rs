//! Connection over TCP, with or without TLS, or over a unix socket.
//!
//! The kernel reports a unix socket as writable each time the other end has read a message. Tokio's own streams watch
//! both directions, so every message would wake its sender once more. This module watches only the reading side. A
//! write that would block watches the writing side through a second descriptor, until it is complete.

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
use tokio::sync::watch as channel;
use tokio::time::{sleep, timeout};

use crate::certificate::ServerCertificate;
use crate::closing::Closing;
use crate::tls::TlsSocket;

/// Bytes that may wait in a unix socket; the kernel doubles the number. Source: default of `wmem_max`, which an
/// administrator may have changed.
const UNIX_BUFFER: usize = 212_992;

/// Pauses between two checks whether a client that sends nothing more still reads: the first, and the longest.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LATER_LOOKS: Duration = Duration::from_millis(200);

/// Timeout for a client to read the last message.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

/// A socket of any kind, which never blocks.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Tls(Box<TlsSocket>),
    Unix(UnixStream),
}

impl Socket {
    /// Wraps a connection of a TCP listener. Sends small messages without delay.
    pub(crate) fn tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self::Tcp(stream))
    }

    /// Wraps a connection of a unix socket.
    pub(crate) fn unix(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        // The kernel reports room when three quarters are free, which suffices until the next write.
        sys::set_send_buffer(&stream, UNIX_BUFFER)?;
        Ok(Self::Unix(stream))
    }

    /// Reads available bytes; `WouldBlock` if there are none.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        uninterrupted(|| match self {
            Self::Tcp(stream) => (&mut &*stream).read(buffer),
            Self::Tls(socket) => socket.receive(buffer),
            Self::Unix(stream) => (&mut &*stream).read(buffer),
        })
    }

    /// Writes as much as there is room for; `WouldBlock` if there is no room. A caller has to retry with the same
    /// bytes.
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        uninterrupted(|| match self {
            Self::Tcp(stream) => (&mut &*stream).write(bytes),
            Self::Tls(socket) => socket.send(bytes),
            Self::Unix(stream) => (&mut &*stream).write(bytes),
        })
    }

    /// Closes the writing side; `WouldBlock` if there is no room for TLS's last record.
    pub(crate) fn finish(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Self::Tls(socket) => socket.finish(),
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }

    /// Returns a handle by which a lease checks and closes the client, if the system has a descriptor for it, and the
    /// signal that the handle sends to the session.
    pub(crate) fn link(&self) -> (Option<Arc<dyn ClientLink>>, Closing) {
        let (closing, receiver) = channel::channel(false);
        let link = self.duplicate().ok().map(|connection| Link { connection, closing });
        (link.map(|link| -> Arc<dyn ClientLink> { Arc::new(link) }), receiver)
    }

    /// Duplicates the descriptor, to watch the connection but not to use it.
    fn duplicate(&self) -> io::Result<OwnedFd> {
        self.as_fd().try_clone_to_owned()
    }
}

/// Handle of a client's connection for its lease.
#[derive(Debug)]
struct Link {
    connection: OwnedFd,
    closing: channel::Sender<bool>,
}

impl ClientLink for Link {
    fn is_gone(&self) -> bool {
        sys::is_closed_by_peer(&self.connection)
    }

    fn close(&self) {
        self.closing.send_replace(true);
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

/// Connection that the current runtime watches.
#[derive(Debug)]
pub struct Stream {
    socket: AsyncFd<Socket>,
    /// Watches for room while a write waits for it.
    room: Option<AsyncFd<OwnedFd>>,
    /// Bytes that were read too early. They come before all others.
    unread: Vec<u8>,
}

impl Stream {
    /// Has the current runtime watch `socket`. Reads return `unread` first.
    pub(crate) fn new(socket: Socket, mut unread: Vec<u8>) -> io::Result<Self> {
        if let Socket::Tls(socket) = &socket {
            socket.take_decrypted(&mut unread);
        }
        Ok(Self { socket: watch(socket, Interest::READABLE)?, room: None, unread })
    }

    /// Local and remote address of a TCP connection; `None` over a unix socket.
    #[must_use]
    pub fn tcp_ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        let stream = match self.socket() {
            Socket::Tcp(stream) => stream,
            Socket::Tls(socket) => socket.stream(),
            Socket::Unix(_) => return None,
        };
        Some((stream.local_addr().ok()?, stream.peer_addr().ok()?))
    }

    /// Returns a watch for the client's departure, which works while others use the connection.
    pub fn departure(&self) -> io::Result<Departure> {
        let connection = watch(self.socket().duplicate()?, Interest::READABLE)?;
        Ok(Departure { connection, ends: self.tcp_ends() })
    }

    /// Whether the connection uses TLS, so that only its two ends can read it.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.tls().is_some()
    }

    /// TLS state of the connection, if it uses TLS.
    pub(crate) fn tls(&self) -> Option<&TlsSocket> {
        match self.socket() {
            Socket::Tls(socket) => Some(socket),
            Socket::Tcp(_) | Socket::Unix(_) => None,
        }
    }

    /// Begins TLS on a TCP connection. `read` are handshake bytes that were read too early. Other connections stay as
    /// they are.
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

    /// Ends the watch. Returns the socket and the unread bytes.
    pub(crate) fn into_parts(self) -> (Socket, Vec<u8>) {
        (self.socket.into_inner(), self.unread)
    }

    /// Puts `bytes` before all unread bytes.
    pub(crate) fn preceded_by(mut self, mut bytes: Vec<u8>) -> Self {
        bytes.append(&mut self.unread);
        self.unread = bytes;
        self
    }

    /// Socket for calls that do not wait.
    pub(crate) fn socket(&self) -> &Socket {
        self.socket.get_ref()
    }

    /// Reads at least one byte; 0 at the end.
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
                // A short read has emptied the socket, so the next call would block. With TLS it only ends a record.
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
        // A short write means that there may be no room for the rest.
        if !matches!(sent, Ok(count) if count < bytes.len()) {
            self.room = None;
        }
        Poll::Ready(sent)
    }

    /// Repeats `write` each time there is room, until it no longer blocks.
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

    /// Sends a last message, closes, and waits a moment until the client has read it.
    pub(crate) async fn say_and_close(mut self, words: &[u8]) {
        let farewell = async {
            self.write_all(words).await?;
            self.shutdown().await?;
            // Closing with unread bytes would reset the connection, and the client would lose bytes that it has not
            // read yet.
            tokio::io::copy(&mut self, &mut tokio::io::sink()).await
        };
        if let Err(error) = timeout(FAREWELL_TIMEOUT, farewell).await.map_err(io::Error::from).flatten() {
            tracing::debug!(%error, "a client did not wait for the last words");
        }
    }

    fn watch_for_room(&self) -> io::Result<AsyncFd<OwnedFd>> {
        watch(self.socket.get_ref().duplicate()?, Interest::WRITABLE)
    }
}

/// Tells a client that has closed its writing side, and still reads, from one that is gone.
#[derive(Debug)]
pub struct Departure {
    connection: AsyncFd<OwnedFd>,
    ends: Option<(SocketAddr, SocketAddr)>,
}

impl Departure {
    /// Waits until the client sends nothing more.
    pub async fn silence(&self) {
        // Asks the kernel each time, because its answer may come before the runtime's.
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

    /// Waits until a client that sends nothing more is gone. One on another machine counts as gone, because nothing
    /// shows that it still reads.
    pub async fn end(&self) {
        let mut pause = FIRST_LOOK;
        while !sys::is_hung_up(&self.connection)
            && self.ends.is_none_or(|(local, remote)| sys::is_open_here(remote, local))
        {
            sleep(pause).await;
            pause = (pause * 2).min(LATER_LOOKS);
        }
    }
}

/// Has the current runtime watch a descriptor.
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
