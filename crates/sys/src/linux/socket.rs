//! Provides socket options and states that the standard library lacks.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, connect_unspec, listen, recv, sockopt};

/// Limits the number of connections waiting for `accept` to `waiting`.
pub fn limit_backlog(listener: &TcpListener, waiting: i32) -> io::Result<()> {
    Ok(listen(listener, waiting)?)
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

/// Sends a reset and disconnects, even if the socket has more descriptors. Unsent data is lost.
pub fn reset_now(stream: &TcpStream) -> io::Result<()> {
    Ok(connect_unspec(stream)?)
}

/// Sets the size of the send buffer in bytes. The kernel doubles this value.
pub fn set_send_buffer(stream: impl AsFd, bytes: usize) -> io::Result<()> {
    Ok(sockopt::set_socket_send_buffer_size(stream, bytes)?)
}

/// Returns true if our own user or root opened the other end of a unix socket connection. Source: unix(7),
/// `SO_PEERCRED`.
#[must_use]
pub fn is_from_our_user(stream: &UnixStream) -> bool {
    let peer = sockopt::socket_peercred(stream);
    peer.is_ok_and(|peer| peer.uid.is_root() || peer.uid == rustix::process::geteuid())
}

/// Returns true if the connection is open and there is nothing to read.
#[must_use]
pub fn is_idle_socket(stream: &UnixStream) -> bool {
    matches!(recv(stream, &mut [0], RecvFlags::PEEK | RecvFlags::DONTWAIT), Err(rustix::io::Errno::AGAIN))
}

/// Returns true if the peer has closed the connection, or at least its sending direction.
#[must_use]
pub fn is_closed_by_peer(stream: impl AsFd) -> bool {
    has_event(stream, PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
}

/// Returns true if the connection is broken or closed in both directions. If the peer closes a TCP
/// connection, this becomes true only after we have sent something.
#[must_use]
pub fn is_hung_up(stream: impl AsFd) -> bool {
    has_event(stream, PollFlags::HUP | PollFlags::ERR)
}

fn has_event(stream: impl AsFd, any: PollFlags) -> bool {
    let mut fds = [PollFd::new(&stream, PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut fds, Some(&now)), Ok(1)) && fds[0].revents().intersects(any)
}
