//! Finds the owner of the other end of a loopback connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::process_table::{descriptor_structure, descriptors, pids, users_of};
use super::structures::{INI_IPV4, PROC_PIDFDSOCKETINFO, PROX_FDTYPE_SOCKET, SOCKINFO_TCP, SocketFile};

/// Returns the effective uid of a process that has the socket from `near` to `far`
/// open. Returns `None` if no process whose files we can see has this socket open.
/// The kernel shows the files of a process only to the process's user and to root.
pub(crate) fn owner_of_connection(near: SocketAddr, far: SocketAddr) -> Option<u32> {
    let holder = pids().ok()?.into_iter().find(|pid| {
        descriptors(*pid, PROX_FDTYPE_SOCKET).into_iter().any(|descriptor| {
            let socket: Option<SocketFile> = descriptor_structure(*pid, descriptor, PROC_PIDFDSOCKETINFO);
            socket.is_some_and(|socket| ends(&socket) == Some((near, far)))
        })
    })?;
    users_of(holder)?.get(1).copied()
}

/// Returns the local and the remote address of a TCP socket, or `None` for any other socket.
fn ends(socket: &SocketFile) -> Option<(SocketAddr, SocketAddr)> {
    let address = |bytes: [u8; 16], port: i32| {
        let v6 = Ipv6Addr::from(bytes);
        let ip = if socket.versions & INI_IPV4 != 0 {
            let [.., a, b, c, d] = bytes;
            IpAddr::from(Ipv4Addr::new(a, b, c, d))
        } else {
            v6.to_canonical()
        };
        // The kernel keeps ports in network byte order.
        u16::try_from(port).ok().map(|port| SocketAddr::new(ip, u16::from_be(port)))
    };
    let own = address(socket.local, socket.local_port)?;
    let other = address(socket.remote, socket.remote_port)?;
    (socket.kind == SOCKINFO_TCP).then_some((own, other))
}
