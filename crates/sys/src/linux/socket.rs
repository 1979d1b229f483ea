//! What the standard library does not do with sockets.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, listen, recv, sockopt};

/// Lets at most `waiting` connections wait to be accepted.
pub fn bound_waiting(listener: &TcpListener, waiting: i32) -> io::Result<()> {
    Ok(listen(listener, waiting)?)
}

/// Has the kernel ask now and then whether the other end of a connection is still there, of all that come in by `listener`: one whose
/// machine has vanished ends. Source: the kernel copies that to a connection when it is accepted; PostgreSQL asks for it, too.
pub fn keep_alive(listener: &TcpListener) -> io::Result<()> {
    Ok(sockopt::set_socket_keepalive(listener, true)?)
}

/// Lets the end of a connection be a reset: nothing is left of it that waits.
pub fn reset_at_end(stream: &TcpStream) -> io::Result<()> {
    Ok(sockopt::set_socket_linger(stream, Some(Duration::ZERO))?)
}

/// Sets how many bytes may wait to be sent; the kernel doubles it.
pub fn set_send_buffer(stream: impl AsFd, bytes: usize) -> io::Result<()> {
    Ok(sockopt::set_socket_send_buffer_size(stream, bytes)?)
}

/// Whether a connection is open and there is nothing to read.
#[must_use]
pub fn is_silent(stream: &UnixStream) -> bool {
    matches!(recv(stream, &mut [0], RecvFlags::PEEK | RecvFlags::DONTWAIT), Err(rustix::io::Errno::AGAIN))
}

/// Whether the other end of a connection was closed, at least in the direction to us.
#[must_use]
pub fn is_closed_by_peer(stream: impl AsFd) -> bool {
    polls(stream, PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
}

/// Whether a connection is closed in both directions, or broken. A TCP connection of which the other end was closed is not
/// until something is sent to it.
#[must_use]
pub fn is_hung_up(stream: impl AsFd) -> bool {
    polls(stream, PollFlags::HUP | PollFlags::ERR)
}

fn polls(stream: impl AsFd, any: PollFlags) -> bool {
    let mut fds = [PollFd::new(&stream, PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut fds, Some(&now)), Ok(1)) && fds[0].revents().intersects(any)
}
