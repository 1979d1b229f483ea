//! One connection, over TCP with TLS or without, or over a unix socket.
//!
//! The kernel tells of a unix socket that it is writable again each time the other end has read a message: with both
//! directions watched, as tokio's own streams do it, every message would wake its sender once more. Here only the
//! reading side is watched; a write that would block watches the writing side through a descriptor of its own until it
//! is through.

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

/// Bytes that may wait in a unix socket; the kernel doubles it. Source: `wmem_max` is as much unless an administrator has
/// changed it.
const UNIX_BUFFER: usize = 212_992;

/// How often it is looked whether a client that says nothing more still reads: at first, and in the long run.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LATER_LOOKS: Duration = Duration::from_millis(200);

/// How long a client may take to read its last words.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

/// A socket of any kind, which never blocks.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Tls(Box<TlsSocket>),
    Unix(UnixStream),
}

impl Socket {
    /// Takes over a connection of a TCP listener. Small messages go out at once.
    pub(crate) fn tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self::Tcp(stream))
    }

    /// Takes over a connection of a unix socket.
    pub(crate) fn unix(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        // There is room again when a quarter is left: that lasts until the next write.
        sys::set_send_buffer(&stream, UNIX_BUFFER)?;
        Ok(Self::Unix(stream))
    }

    /// Reads what is there; `WouldBlock` if that is nothing.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        uninterrupted(|| match self {
            Self::Tcp(stream) => (&mut &*stream).read(buffer),
            Self::Tls(socket) => socket.receive(buffer),
            Self::Unix(stream) => (&mut &*stream).read(buffer),
        })
    }

    /// Writes what there is room for; `WouldBlock` if that is nothing. Who tries again begins with the same bytes.
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        uninterrupted(|| match self {
            Self::Tcp(stream) => (&mut &*stream).write(bytes),
            Self::Tls(socket) => socket.send(bytes),
            Self::Unix(stream) => (&mut &*stream).write(bytes),
        })
    }

    /// Tells the other end that nothing more will come; `WouldBlock` if there is no room for that.
    pub(crate) fn finish(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Self::Tls(socket) => socket.finish(),
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }

    /// What a lease is to know of the client, if that can be had, and how its session hears that it is to be closed.
    pub(crate) fn link(&self) -> (Option<Arc<dyn ClientLink>>, Closing) {
        let (closing, receiver) = channel::channel(false);
        let link = self.duplicate().ok().map(|connection| Link { connection, closing });
        (link.map(|link| -> Arc<dyn ClientLink> { Arc::new(link) }), receiver)
    }

    /// The same connection, to be watched but not used.
    fn duplicate(&self) -> io::Result<OwnedFd> {
        self.as_fd().try_clone_to_owned()
    }
}

/// Looks at a connection from aside.
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

/// A connection that the running runtime watches.
#[derive(Debug)]
pub struct Stream {
    socket: AsyncFd<Socket>,
    /// Watches for room, while a write waits for it.
    room: Option<AsyncFd<OwnedFd>>,
    /// Read too early; comes before all that the socket has.
    unread: Vec<u8>,
}

impl Stream {
    /// Has the current runtime watch `socket`. `unread` is read before all else.
    pub(crate) fn new(socket: Socket, mut unread: Vec<u8>) -> io::Result<Self> {
        if let Socket::Tls(socket) = &socket {
            socket.take_decrypted(&mut unread);
        }
        Ok(Self { socket: watch(socket, Interest::READABLE)?, room: None, unread })
    }

    /// Both ends of it, ours first; none if it is no TCP connection.
    #[must_use]
    pub fn tcp_ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        let stream = match self.socket() {
            Socket::Tcp(stream) => stream,
            Socket::Tls(socket) => socket.stream(),
            Socket::Unix(_) => return None,
        };
        Some((stream.local_addr().ok()?, stream.peer_addr().ok()?))
    }

    /// What tells whether its client is gone, beside it.
    pub fn departure(&self) -> io::Result<Departure> {
        let connection = watch(self.socket().duplicate()?, Interest::READABLE)?;
        Ok(Departure { connection, ends: self.tcp_ends() })
    }

    /// Whether it is TLS, which only its two ends can read.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.tls().is_some()
    }

    /// Its TLS, if it has that.
    pub(crate) fn tls(&self) -> Option<&TlsSocket> {
        match self.socket() {
            Socket::Tls(socket) => Some(socket),
            Socket::Tcp(_) | Socket::Unix(_) => None,
        }
    }

    /// Begins TLS on a TCP connection, of whose handshake `read` was read too early. Any other stays as it is.
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

    /// Ends the watch; returns the socket and what has not been read.
    pub(crate) fn into_parts(self) -> (Socket, Vec<u8>) {
        (self.socket.into_inner(), self.unread)
    }

    /// The same, with `bytes` before all that is still to be read.
    pub(crate) fn preceded_by(mut self, mut bytes: Vec<u8>) -> Self {
        bytes.append(&mut self.unread);
        self.unread = bytes;
        self
    }

    /// The socket, to be used without waiting.
    pub(crate) fn socket(&self) -> &Socket {
        self.socket.get_ref()
    }

    /// Reads at least one byte, or none at the end.
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
                // Less than there was room for: the next call would say that there is nothing more. Of TLS it is a record.
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
        // There may be no room for the rest.
        if !matches!(sent, Ok(count) if count < bytes.len()) {
            self.room = None;
        }
        Poll::Ready(sent)
    }

    /// Tries `write` until it does not say any more that it has no room.
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

    /// Says the last words, and waits for a moment until the client has read them.
    pub(crate) async fn say_and_close(mut self, words: &[u8]) {
        let farewell = async {
            self.write_all(words).await?;
            self.shutdown().await?;
            // Closing with bytes unread would reset the connection, and what it has not read yet is lost to the client.
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

/// Tells a client that has only said all that it has to say, and still reads, from one that is gone.
#[derive(Debug)]
pub struct Departure {
    connection: AsyncFd<OwnedFd>,
    ends: Option<(SocketAddr, SocketAddr)>,
}

impl Departure {
    /// Waits until the client says nothing more.
    pub async fn silence(&self) {
        // The kernel is asked each time: its answer may come before the runtime has heard of it.
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

    /// Waits until one that says nothing more is gone. One on another machine is: nothing tells that it still reads.
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
