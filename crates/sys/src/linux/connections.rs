//! Finds the owner of the other end of a loopback connection.
//!
//! `sock_diag(7)` looks up a single socket, at a cost that doesn't depend on the number of sockets.
//! Some kernels, such as gVisor and kernels without `tcp_diag`, don't support it. There, pgfresh
//! reads the table of all sockets instead. If the table doesn't exist either, the owner is unknown.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::OnceLock;

use super::connection_table::tables;
use super::socket_diag;
use crate::host;

const LISTENING: &str = "0A";

/// Returns the uid that owns the socket at `remote`, which is
/// connected to `local`. Returns `None` if the owner is unknown.
pub(crate) fn owner(remote: SocketAddr, local: SocketAddr) -> Option<u32> {
    if supports_sock_diag() {
        socket_diag::owner(remote, local).ok().flatten()
    } else {
        host::owner_of_connection(remote, local)
    }
}

/// Returns true if a process still has the socket at `remote` open, even if only for reading. Without `sock_diag`,
/// this always returns false.
pub(crate) fn is_open(remote: SocketAddr, local: SocketAddr) -> bool {
    supports_sock_diag() && socket_diag::owner(remote, local).is_ok_and(|owner| owner.is_some())
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

/// Returns the name and pid of the process that listens on `port`. Returns `None`
/// if no process listens there or if we aren't allowed to see its descriptors.
#[must_use]
pub fn listener_at(port: u16) -> Option<(String, u32)> {
    let suffix = format!(":{port:04X}");
    let sockets: Vec<String> = tables()
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
    fn sock_diag_knows_a_half_closed_socket() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (served, remote) = listener.accept().unwrap();
        let local = served.local_addr().unwrap();
        let ours = Some(rustix::process::getuid().as_raw());
        assert!(!supports_sock_diag() || socket_diag::owner(remote, local).unwrap() == ours);
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(
            [owner(remote, local) == ours, is_open(remote, local)],
            [true, supports_sock_diag()],
            "it still reads"
        );
        drop(client);
        assert_eq!((owner(remote, local), is_open(remote, local)), (None, false));
    }
}
