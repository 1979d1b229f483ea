//! Looks up a single TCP socket with `sock_diag(7)` over netlink, which is faster than reading the table of
//! all sockets. The messages have the following fields, with their sizes in bytes:
//!
//! ```text
//! nlmsghdr          length 4, type 2, flags 2, sequence 4, port 4
//! inet_diag_req_v2  family 1, protocol 1, extensions 1, - 1, states 4, and the socket's
//! inet_diag_sockid    port 2, peer's port 2, address 16, peer's address 16, interface 4, cookie 8
//! inet_diag_msg     family 1, state 1, timer 1, retransmissions 1, inet_diag_sockid, timeout 4, queues 8, uid 4, inode 4, …
//! ```
//! Source: Linux's `include/uapi/linux/{netlink,sock_diag,inet_diag}.h`. Ports and addresses are in network
//! byte order, and all other numbers are in native byte order.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

/// `SOCK_DIAG_BY_FAMILY`, the type of both the request and the response.
const BY_FAMILY: u16 = 20;
/// `NLMSG_ERROR`, the type of an error response. Its body starts with a negative errno.
const ERROR: u16 = 2;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
/// `IPPROTO_TCP`.
const TCP: u8 = 6;
/// Sizes in bytes of a `nlmsghdr` and a request.
const HEADER: usize = 16;
const REQUEST_SIZE: usize = HEADER + 8 + 48;
/// Byte ranges of the ports and addresses, the uid, and the inode in a response.
const ADDRESS_RANGE: std::ops::Range<usize> = HEADER + 4..HEADER + 4 + 36;
const UID_RANGE: std::ops::Range<usize> = HEADER + 4 + 48 + 12..HEADER + 4 + 48 + 16;
const INODE_RANGE: std::ops::Range<usize> = UID_RANGE.end..UID_RANGE.end + 4;

/// Returns the uid of the socket bound to `near` and connected to `far`. Returns `None`
/// if the socket doesn't exist, or if every process that had it open has closed it.
pub(super) fn owner(near: SocketAddr, far: SocketAddr) -> io::Result<Option<u32>> {
    let (family, names) = encode_addresses(near, far);
    let kernel = socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    send(&kernel, &request(family, &names), SendFlags::empty())?;
    let mut answer = [0; 1024];
    // The kernel queues the response before `send` returns.
    let (length, _) = recv(&kernel, &mut answer[..], RecvFlags::DONTWAIT)?;
    parse_response(&answer[..length], &names)
}

fn request(family: AddressFamily, names: &[u8; 36]) -> Vec<u8> {
    let mut question = Vec::with_capacity(REQUEST_SIZE);
    question.extend(u32::try_from(REQUEST_SIZE).unwrap_or(0).to_ne_bytes());
    question.extend(BY_FAMILY.to_ne_bytes());
    question.extend(REQUEST.to_ne_bytes());
    question.extend([0; 8]);
    question.extend([u8::try_from(family.as_raw()).unwrap_or(0), TCP, 0, 0]);
    question.extend(u32::MAX.to_ne_bytes());
    question.extend(names);
    // Any interface, and no cookie.
    question.extend([0; 4]);
    question.extend([0xff; 8]);
    question
}

/// Encodes the ports and addresses of a socket and its peer.
fn encode_addresses(near: SocketAddr, far: SocketAddr) -> (AddressFamily, [u8; 36]) {
    let mut names = [0; 36];
    names[..2].copy_from_slice(&near.port().to_be_bytes());
    names[2..4].copy_from_slice(&far.port().to_be_bytes());
    let mut put = |at: usize, address: IpAddr| match address {
        IpAddr::V4(v4) => {
            names[at..at + 4].copy_from_slice(&v4.octets());
            AddressFamily::INET
        }
        IpAddr::V6(v6) => {
            names[at..at + 16].copy_from_slice(&v6.octets());
            AddressFamily::INET6
        }
    };
    put(4, near.ip());
    let family = put(20, far.ip());
    (family, names)
}

/// Parses the response to a request for `names`. Ignores a socket with different ports, because the kernel may
/// return a listening socket instead. Also ignores a socket without an inode, because no process has it open.
fn parse_response(answer: &[u8], names: &[u8; 36]) -> io::Result<Option<u32>> {
    let broken = || io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer is cut short");
    let number = |range| answer.get::<std::ops::Range<usize>>(range).ok_or_else(broken);
    let kind = u16::from_ne_bytes(number(4..6)?.try_into().map_err(|_| broken())?);
    let word = |range| -> io::Result<u32> {
        Ok(u32::from_ne_bytes(number(range)?.try_into().map_err(|_| broken())?))
    };
    match kind {
        BY_FAMILY => {
            let user = word(UID_RANGE)?;
            // Compare only the ports. The addresses may have a different form, because the kernel returns
            // mapped addresses if an IPv6 socket uses IPv4.
            let same_ports = number(ADDRESS_RANGE)?[..4] == names[..4];
            Ok((word(INODE_RANGE)? != 0 && same_ports).then_some(user))
        }
        ERROR => {
            let error = io::Error::from_raw_os_error(word(HEADER..HEADER + 4)?.cast_signed().wrapping_neg());
            if error.kind() == io::ErrorKind::NotFound { Ok(None) } else { Err(error) }
        }
        _ => Err(broken()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_answer_counts_only_for_requested_socket() {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let (family, names) = encode_addresses(at(4711), at(5432));
        assert_eq!(request(family, &names).len(), REQUEST_SIZE);
        let mut answer = vec![0; INODE_RANGE.end];
        answer[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
        answer[INODE_RANGE.start] = 1;
        answer[ADDRESS_RANGE].copy_from_slice(&names);
        answer[UID_RANGE].copy_from_slice(&1000_u32.to_ne_bytes());
        assert_eq!(parse_response(&answer, &names).unwrap(), Some(1000));
        answer[INODE_RANGE.start] = 0;
        assert_eq!(parse_response(&answer, &names).unwrap(), None, "closing");
        answer[INODE_RANGE.start] = 1;
        assert_eq!(
            parse_response(&answer, &super::encode_addresses(at(4712), at(5432)).1).unwrap(),
            None,
            "another"
        );
        assert!(parse_response(&answer[..40], &names).is_err() && parse_response(&[], &names).is_err());
        answer[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        answer[HEADER..HEADER + 4].copy_from_slice(&(-2_i32).to_ne_bytes());
        assert_eq!(parse_response(&answer, &names).unwrap(), None, "there is none");
        answer[HEADER..HEADER + 4].copy_from_slice(&(-1_i32).to_ne_bytes());
        assert!(parse_response(&answer, &names).is_err());
    }
}
