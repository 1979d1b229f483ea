//! Looks up connections in the kernel's table of all sockets, which looks like this:
//!
//! ```text
//!   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
//!    0: 0100007F:8F34 0100007F:1538 01 00000000:00000000 00:00000000 00000000  1000        0 4711 …
//! ```
//! Source: Linux's `proc_net_tcp.rst`. Addresses are in network byte order but printed as native integers.

use std::fs;
use std::net::{IpAddr, SocketAddr};

/// The state of an open connection.
const ESTABLISHED: &str = "01";

/// Returns the uid that owns the socket at `near`, which is connected to `far`. Returns `None` if the
/// owner is unknown. Both addresses are loopback addresses, and IPv4 addresses aren't mapped to IPv6.
///
/// pgfresh accepts connections from our own user and from root without a password. Therefore an
/// implementation must not return the uid of either unless one of that user's processes has this socket open.
pub(crate) fn owner_of_connection(near: SocketAddr, far: SocketAddr) -> Option<u32> {
    tables().find_map(|table| owner(&table, near, far))
}

/// Returns the kernel's tables of TCP sockets.
pub(super) fn tables() -> impl Iterator<Item = String> {
    ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().filter_map(|table| fs::read_to_string(table).ok())
}

/// Returns the uid of the socket bound to `near` and connected to `far`.
fn owner(table: &str, near: SocketAddr, far: SocketAddr) -> Option<u32> {
    let (near, far) = (table_forms(near), table_forms(far));
    table.lines().skip(1).find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (local, remote, state) = (words.next()?, words.next()?, words.next()?);
        let found = near.iter().any(|near| near == local) && far.iter().any(|far| far == remote);
        if !found {
            return None;
        }
        // The uid is the fourth word after the state. The queues, the timer and a retry count precede it.
        let (owner, inode) = (words.nth(3)?, words.nth(1)?);
        // A socket that isn't open in any process doesn't have an inode, and reports 0 as its user.
        (state == ESTABLISHED || inode != "0").then(|| owner.parse().ok())?
    })
}

/// Returns the forms an address can have in the tables. For example, a client can use IPv4 through an IPv6
/// socket.
fn table_forms(address: SocketAddr) -> Vec<String> {
    let write = |octets: &[u8]| {
        let mut text = String::new();
        for word in octets.chunks_exact(4) {
            let word = u32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
            // Writing to a String can't fail.
            text.push_str(&format!("{word:08X}"));
        }
        text.push_str(&format!(":{:04X}", address.port()));
        text
    };
    match address.ip() {
        IpAddr::V4(v4) => vec![write(&v4.octets()), write(&v4.to_ipv6_mapped().octets())],
        IpAddr::V6(v6) => vec![write(&v6.octets())],
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Shutdown, TcpListener, TcpStream};

    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn socket_table_names_owner_of_live_socket() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             \x20  0: 0100007F:1538 0100007F:8F34 01 00000000:00000000 00:00000000 00000000  1000        0 1 1\n\
             \x20  1: 0100007F:8F34 0100007F:1538 01 00000000:00000000 00:00000000 00000000  1001        0 2 1\n\
             \x20  2: 0100007F:8F35 0100007F:1538 06 00000000:00000000 03:00000000 00000000     0        0 0 3\n\
             \x20  3: 0000000000000000FFFF00000100007F:8F36 0000000000000000FFFF00000100007F:1538 01 \
             00000000:00000000 00:00000000 00000000  1002        0 2 1\n\
             \x20  4: 0100007F:8F37 0100007F:1538 05 00000000:00000000 00:00000000 00000000  1003        0 4 1\n\
             \x20  5: broken\n";
        let far = SocketAddr::from(([127, 0, 0, 1], 0x1538));
        let near = |port| SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!(owner(table, near(0x8F34), far), Some(1001));
        assert_eq!(owner(table, near(0x8F35), far), None, "a socket that is being closed says 0");
        assert_eq!(owner(table, near(0x8F36), far), Some(1002));
        assert_eq!(owner(table, near(0x8F37), far), Some(1003), "a half-closed socket has an inode");
        assert_eq!(owner(table, near(0x8F38), far), None);
    }

    #[test]
    fn socket_tables_name_our_half_closed_socket() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (served, remote) = listener.accept().unwrap();
        let local = served.local_addr().unwrap();
        let ours = Some(rustix::process::getuid().as_raw());
        assert_eq!(owner_of_connection(remote, local), ours);
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(owner_of_connection(remote, local), ours);
        drop(client);
        assert_eq!(owner_of_connection(remote, local), None);
    }
}
