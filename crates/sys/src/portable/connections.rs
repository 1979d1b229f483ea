//! Finds the owner of the other end of a loopback connection.

use std::net::SocketAddr;

use crate::host;

/// Returns the uid that owns the socket at `remote`, which is
/// connected to `local`. Returns `None` if the owner is unknown.
pub(crate) fn owner(remote: SocketAddr, local: SocketAddr) -> Option<u32> {
    host::owner_of_connection(remote, local)
}

/// Returns true if a process still has the socket at `remote` open,
/// even if only for reading. Returns false if the system can't tell.
pub(crate) fn is_open(remote: SocketAddr, local: SocketAddr) -> bool {
    host::owner_of_connection(remote, local).is_some()
}

/// Returns `None`, because POSIX doesn't have a call that finds the process listening on a port.
#[must_use]
pub fn listener_at(_port: u16) -> Option<(String, u32)> {
    None
}
