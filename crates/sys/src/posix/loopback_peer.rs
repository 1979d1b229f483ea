//! Finds out which user opened the other end of a loopback connection. This lets pgfresh accept connections
//! from its own user without a password.

use std::net::SocketAddr;

use crate::system::connections;

/// Returns true if a connection's peer is on this machine and belongs to our user or to root. `remote`
/// is the peer's address, and `local` is our own address. Returns false if the owner is unknown.
#[must_use]
pub fn is_own_loopback_peer(remote: SocketAddr, local: SocketAddr) -> bool {
    let (remote, local) = (canonical(remote), canonical(local));
    if !remote.ip().is_loopback() || !local.ip().is_loopback() {
        return false;
    }
    let ours = rustix::process::getuid().as_raw();
    connections::owner(remote, local).is_some_and(|owner| owner == ours || owner == 0)
}

/// Returns true if a connection's peer is on this machine and a process still has the peer's socket open, even if only
/// for reading. `remote` is the peer's address, and `local` is our own address. Returns false if the system can't tell.
#[must_use]
pub fn is_open_on_this_machine(remote: SocketAddr, local: SocketAddr) -> bool {
    connections::is_open(canonical(remote), canonical(local))
}

/// Returns an IPv4 address that is mapped to IPv6 as IPv4. A client can use IPv4 through an IPv6 socket.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn loopback_peer_covers_ipv6_and_mapped_addresses() {
        for (bound, reached) in [("[::1]:0", "::1"), ("[::]:0", "127.0.0.1")] {
            // Without IPv6 on this machine, there is nothing to test.
            let Ok(listener) = TcpListener::bind(bound) else { continue };
            let port = listener.local_addr().unwrap().port();
            let _client = TcpStream::connect((reached, port)).unwrap();
            let (served, remote) = listener.accept().unwrap();
            assert!(is_own_loopback_peer(remote, served.local_addr().unwrap()), "{bound}");
        }
    }

    #[test]
    fn own_loopback_connection_is_recognized() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (served, remote) = listener.accept().unwrap();
        let local = served.local_addr().unwrap();
        assert!(is_own_loopback_peer(remote, local));
        assert!(is_open_on_this_machine(remote, local) || !connections::is_open(remote, local));
        assert!(!is_own_loopback_peer("192.0.2.1:99".parse().unwrap(), local), "of another machine");
        drop(client);
        assert_eq!(
            [is_own_loopback_peer(remote, local), is_open_on_this_machine(remote, local)],
            [false; 2],
            "closed"
        );
    }
}
