//! Checks whether connections have ended, and resets them.
//!
//! On macOS, `POLLHUP` applies to one direction. With `POLLIN`, `poll` reports that the peer has
//! closed its sending direction. With `POLLOUT`, it reports that we can no longer send. Without either
//! flag, it doesn't report anything. Source: `poll_callback` in `bsd/kern/sys_generic.c` of XNU.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;

use crate::posix::socket::Peer;

/// Sends a reset and disconnects, even if the socket has other descriptors. Unsent data is lost. Source:
/// `tcp_disconnect` in `bsd/netinet/tcp_usrreq.c` of XNU.
#[allow(unsafe_code)]
pub fn reset_now(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_linger(stream, Some(Duration::ZERO))?;
    // SAFETY: the call takes no pointers.
    match unsafe { libc::disconnectx(stream.as_raw_fd(), libc::SAE_ASSOCID_ANY, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the user of the process that opened the other end of a unix socket connection, or that listened
/// there when we connected. The pid is always `None`. Source: getpeereid(3), which reads `LOCAL_PEERCRED`.
#[allow(unsafe_code)]
pub(crate) fn peer(stream: &UnixStream) -> io::Result<Peer> {
    let (mut user, mut group) = (0, 0);
    // SAFETY: the call writes one number to each of the two variables.
    match unsafe { libc::getpeereid(stream.as_raw_fd(), &raw mut user, &raw mut group) } {
        0 => Ok(Peer { user, process: None }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns true if the peer has closed the connection, or at least its sending direction. For a pipe, returns true if
/// no process has its other end open.
#[must_use]
pub fn is_closed_by_peer(stream: impl AsFd) -> bool {
    has_ended(stream, PollFlags::IN)
}

/// Returns true if the connection is broken or closed in both directions. If the peer closes a TCP connection, this
/// becomes true only after we have sent something.
#[must_use]
pub fn is_hung_up(stream: impl AsFd) -> bool {
    has_ended(&stream, PollFlags::IN) && has_ended(&stream, PollFlags::OUT)
}

fn has_ended(stream: impl AsFd, direction: PollFlags) -> bool {
    let mut fds = [PollFd::new(&stream, direction)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut fds, Some(&now)), Ok(1))
        && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}
