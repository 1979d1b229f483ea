//! Checks whether connections have ended, and resets them.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{connect_unspec, sockopt};

use crate::posix::socket::Peer;

/// Sends a reset and disconnects, even if the socket has other descriptors. Unsent data is lost. Source: connect(2),
/// `AF_UNSPEC`.
pub fn reset_now(stream: &TcpStream) -> io::Result<()> {
    Ok(connect_unspec(stream)?)
}

/// Returns the process that opened the other end of a unix socket connection, or that listened there when we connected.
/// Source: unix(7), `SO_PEERCRED`.
pub(crate) fn peer(stream: &UnixStream) -> io::Result<Peer> {
    let peer = sockopt::socket_peercred(stream)?;
    Ok(Peer { user: peer.uid.as_raw(), process: Some(peer.pid) })
}

/// Returns true if the peer has closed the connection, or at least its sending direction. For a pipe, returns true if
/// no process has its other end open.
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
