//! Sets socket options and checks socket states that the standard library doesn't support.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{RecvFlags, listen, recv, sockopt};
use rustix::process::Pid;

use crate::host;

/// Longest path of a Unix socket, in bytes. The zero byte at its end doesn't count. Source: unix(7), `sun_path`.
pub const MAX_SOCKET_PATH_LENGTH: usize =
    size_of::<libc::sockaddr_un>() - std::mem::offset_of!(libc::sockaddr_un, sun_path) - 1;

/// Sets how many connections may wait for `accept`. The kernel permits fewer, depending on its settings: at most 4096
/// by default on Linux. The standard library sets 128.
pub fn set_backlog(listener: impl AsFd, connections: i32) -> io::Result<()> {
    Ok(listen(listener, connections)?)
}

/// Enables TCP keepalive for all connections that `listener` accepts, so that a connection is closed if its
/// client's machine disappears. The kernel copies this option from the listener to each accepted socket.
/// PostgreSQL's own sockets use it too.
pub fn keep_alive(listener: &TcpListener) -> io::Result<()> {
    Ok(sockopt::set_socket_keepalive(listener, true)?)
}

/// Makes the connection send a reset when closed, so that no socket remains in `TIME_WAIT`. Unsent data is
/// lost.
pub fn reset_on_close(stream: &TcpStream) -> io::Result<()> {
    Ok(sockopt::set_socket_linger(stream, Some(Duration::ZERO))?)
}

/// Sets the size of the send buffer in bytes. Linux doubles this value.
pub fn set_send_buffer(stream: impl AsFd, bytes: usize) -> io::Result<()> {
    Ok(sockopt::set_socket_send_buffer_size(stream, bytes)?)
}

/// The process at the other end of a unix socket connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Effective uid of the process.
    pub(crate) user: u32,
    /// Pid of the process, or `None` if the system doesn't report it.
    pub(crate) process: Option<Pid>,
}

/// Returns true if our own user or root opened the other end of a unix socket connection.
#[must_use]
pub fn is_from_our_user(stream: &UnixStream) -> bool {
    host::peer(stream).is_ok_and(|peer| peer.user == 0 || peer.user == rustix::process::geteuid().as_raw())
}

/// Returns true if the connection is open and there is nothing to read.
#[must_use]
pub fn is_idle_socket(stream: &UnixStream) -> bool {
    matches!(recv(stream, &mut [0], RecvFlags::PEEK | RecvFlags::DONTWAIT), Err(rustix::io::Errno::AGAIN))
}
