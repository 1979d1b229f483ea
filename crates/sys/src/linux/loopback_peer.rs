//! Finds out which user opened the other end of a loopback connection. This lets pgfresh accept connections
//! from its own user without a password.
//!
//! `sock_diag(7)` looks up a single socket, at a cost that doesn't depend on the number of sockets. Not every
//! kernel supports it: gVisor doesn't, for example, nor does a kernel without `tcp_diag`. In that case
//! pgfresh reads the table of all sockets instead:
//!
//! ```text
//!   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
//!    0: 0100007F:8F34 0100007F:1538 01 00000000:00000000 00:00000000 00000000  1000        0 4711 …
//! ```
//! Source: Linux's `proc_net_tcp.rst`. Addresses are in network byte order but printed as native integers. If
//! this table doesn't exist either, the owner is unknown.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::OnceLock;

use super::socket_diag;

/// The state of an open connection. The uid is reliable only in this state: a closing socket reports 0, which
/// is also root's uid.
const ESTABLISHED: &str = "01";
const LISTENING: &str = "0A";

/// Returns true if a connection's peer is on this machine and belongs to our user or to root. `remote` is the
/// peer's address, and `local` is our own address.
#[must_use]
pub fn is_own_loopback_peer(remote: SocketAddr, local: SocketAddr) -> bool {
    let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
    let local = SocketAddr::new(local.ip().to_canonical(), local.port());
    if !remote.ip().is_loopback() || !local.ip().is_loopback() {
        return false;
    }
    let ours = rustix::process::getuid().as_raw();
    let owner = if supports_sock_diag() {
        socket_diag::owner(remote, local).ok().flatten()
    } else {
        owner_in_tables(remote, local)
    };
    owner.is_some_and(|owner| owner == ours || owner == 0)
}

/// Returns true if a connection's peer is on this machine and a process still has the peer's socket open,
/// even if only for reading. `remote` is the peer's address, and `local` is our own address. Without
/// `sock_diag`, this always returns false.
#[must_use]
pub fn is_open_on_this_machine(remote: SocketAddr, local: SocketAddr) -> bool {
    let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    supports_sock_diag()
        && socket_diag::owner(canonical(remote), canonical(local)).is_ok_and(|owner| owner.is_some())
}

/// Returns true if the kernel supports `sock_diag`. The first call determines this by looking up a connection
/// to ourselves.
fn supports_sock_diag() -> bool {
    static SUPPORTED: OnceLock<bool> = OnceLock::new();
    let ask_for_ours = || {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let client = TcpStream::connect(listener.local_addr()?)?;
        socket_diag::owner(client.local_addr()?, client.peer_addr()?)
    };
    *SUPPORTED.get_or_init(|| ask_for_ours().is_ok_and(|owner| owner.is_some()))
}

/// Looks up the uid of a socket in the kernel's socket tables.
fn owner_in_tables(near: SocketAddr, far: SocketAddr) -> Option<u32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].into_iter();
    tables.filter_map(|table| fs::read_to_string(table).ok()).find_map(|table| owner(&table, near, far))
}

/// Returns the uid of the socket bound to `near` and connected to `far`.
fn owner(table: &str, near: SocketAddr, far: SocketAddr) -> Option<u32> {
    let (near, far) = (table_forms(near), table_forms(far));
    table.lines().skip(1).find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (local, remote, state) = (words.next()?, words.next()?, words.next()?);
        let found = state == ESTABLISHED
            && near.iter().any(|near| near == local)
            && far.iter().any(|far| far == remote);
        // The uid is the fourth word after the state. The queues, the timer and a retry count precede it.
        if found { words.nth(3)?.parse().ok() } else { None }
    })
}

/// Returns the name and pid of the process that listens on `port`. Returns `None` if there is no such process
/// or if we aren't allowed to see its descriptors.
#[must_use]
pub fn listener_at(port: u16) -> Option<(String, u32)> {
    let suffix = format!(":{port:04X}");
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().filter_map(|path| fs::read_to_string(path).ok());
    let sockets: Vec<String> = tables
        .flat_map(|table| table.lines().filter_map(|line| listening_inode(line, &suffix)).collect::<Vec<_>>())
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let processes = fs::read_dir("/proc").ok()?.flatten();
    processes.filter_map(|entry| Some((entry.path(), entry.file_name().to_str()?.parse().ok()?))).find_map(
        |(path, pid)| {
            let files = fs::read_dir(path.join("fd")).ok()?.flatten();
            let mut targets = files.filter_map(|file| fs::read_link(file.path()).ok());
            targets.find(|target| sockets.iter().any(|socket| target.as_os_str() == socket.as_str()))?;
            let name = fs::read_to_string(path.join("comm")).ok()?;
            Some((name.trim_end().escape_debug().to_string(), pid))
        },
    )
}

/// Returns the inode of the socket in this table line if it listens on the port.
fn listening_inode(line: &str, suffix: &str) -> Option<u64> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let found = words.get(1)?.ends_with(suffix) && *words.get(3)? == LISTENING;
    if found { words.get(9)?.parse().ok() } else { None }
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
    use std::net::Shutdown;

    use super::*;

    #[test]
    fn listener_is_named_while_it_listens() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (name, pid) = listener_at(port).unwrap();
        assert_eq!(pid, std::process::id());
        assert!(!name.is_empty());
        drop(listener);
        assert_eq!(listener_at(port), None);
    }

    #[test]
    fn socket_table_covers_ipv6_and_mapped_addresses() {
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
    #[cfg(target_endian = "little")]
    fn socket_table_names_owner_of_live_socket() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             \x20  0: 0100007F:1538 0100007F:8F34 01 00000000:00000000 00:00000000 00000000  1000        0 1 1\n\
             \x20  1: 0100007F:8F34 0100007F:1538 01 00000000:00000000 00:00000000 00000000  1001        0 2 1\n\
             \x20  2: 0100007F:8F35 0100007F:1538 06 00000000:00000000 03:00000000 00000000     0        0 0 3\n\
             \x20  3: 0000000000000000FFFF00000100007F:8F36 0000000000000000FFFF00000100007F:1538 01 \
             00000000:00000000 00:00000000 00000000  1002        0 2 1\n\
             \x20  4: broken\n";
        let far = SocketAddr::from(([127, 0, 0, 1], 0x1538));
        let near = |port| SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!(owner(table, near(0x8F34), far), Some(1001));
        assert_eq!(owner(table, near(0x8F35), far), None, "a socket that is being closed says 0");
        assert_eq!(owner(table, near(0x8F36), far), Some(1002));
        assert_eq!(owner(table, near(0x8F37), far), None);
    }

    #[test]
    fn own_loopback_connection_is_recognized() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (served, remote) = listener.accept().unwrap();
        let local = served.local_addr().unwrap();
        assert!(is_own_loopback_peer(remote, local));
        let ours = Some(rustix::process::getuid().as_raw());
        assert_eq!(owner_in_tables(remote, local), ours, "by the table");
        assert!(!supports_sock_diag() || socket_diag::owner(remote, local).unwrap() == ours, "by a question");
        assert!(!is_own_loopback_peer("192.0.2.1:99".parse().unwrap(), local), "of another machine");
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(
            [is_own_loopback_peer(remote, local), is_open_on_this_machine(remote, local)],
            [supports_sock_diag(); 2],
            "reads"
        );
        drop(client);
        assert_eq!(
            [is_own_loopback_peer(remote, local), is_open_on_this_machine(remote, local)],
            [false; 2],
            "closed"
        );
    }
}
