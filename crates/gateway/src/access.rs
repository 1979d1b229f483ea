//! Credentials of clients, and the addresses at which they connect.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use pgwire::Verifier;
use server::Address;

use crate::certificate::ServerCertificate;

/// Bytes of a random secret: 128 bits.
const SECRET_BYTES: usize = 16;

/// The secret of a gateway, how clients prove that they know it, and the addresses of databases.
pub struct Access {
    secret: String,
    digest: blake3::Hash,
    /// Checks clients that authenticate by SCRAM; `None` if every client sends the secret as a password.
    verifier: Option<Verifier>,
    /// Whether clients have to authenticate by SCRAM without TLS, too.
    demands_proof: bool,
    /// Certificate for TLS; `None` if the gateway does not offer TLS.
    certificate: Option<Arc<ServerCertificate>>,
    address: SocketAddr,
    advertised: Option<Advertised>,
    socket: Option<SocketFile>,
}

/// Host, and perhaps a port, that pgfresh names to clients on other machines. Without a port they use the gateway's
/// own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advertised {
    host: String,
    port: Option<u16>,
}

impl FromStr for Advertised {
    type Err = String;

    /// Reads `HOST` or `HOST:PORT`; an address of IPv6 with a port is `[ADDRESS]:PORT`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "write HOST or HOST:PORT".to_owned();
        let (host, port) = match text.rsplit_once(':') {
            // More colons: an IPv6 address, which needs brackets if a port follows.
            Some((host, _)) if host.contains(':') && !host.starts_with('[') => (text, None),
            Some((host, port)) if !text.ends_with(']') => {
                (host, Some(port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?))
            }
            _ => (text, None),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let is_name = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        if host.is_empty() || !is_name && host.parse::<Ipv6Addr>().is_err() {
            return Err(wrong());
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

/// The gateway's own unix socket: the file `.s.PGSQL.PORT` in a directory that is closed to others. A client that reaches it
/// needs no password.
#[derive(Debug, Clone)]
pub struct SocketFile {
    /// Directory of the file.
    pub directory: PathBuf,
    /// Port in the file's name. The gateway does not listen on it over a network.
    pub port: u16,
}

impl SocketFile {
    /// Path of the socket's file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.directory.join(format!(".s.PGSQL.{}", self.port))
    }
}

/// Whether clients have to authenticate by SCRAM at a gateway that listens on `listen`. It offers TLS there, too.
#[must_use]
pub fn demands_proof(listen: IpAddr) -> bool {
    listen.to_canonical() != Ipv4Addr::LOCALHOST
}

impl Access {
    /// Admits clients that know `secret` at `address`, and every client of `socket`.
    #[must_use]
    pub fn new(secret: String, address: SocketAddr, socket: Option<SocketFile>) -> Self {
        let digest = blake3::hash(secret.as_bytes());
        Self {
            secret,
            digest,
            verifier: None,
            demands_proof: false,
            certificate: None,
            address,
            advertised: None,
            socket,
        }
    }

    /// Sets how clients authenticate that connect to `listen`, and offers TLS with `certificate`.
    ///
    /// Clients on any address but 127.0.0.1 authenticate by SCRAM. So do clients with TLS: they may insist on a proof
    /// that is bound to the certificate (`channel_binding=require`). All others send the secret, because SCRAM would
    /// cost them milliseconds and protect nothing.
    pub(crate) fn for_clients_on(
        self,
        listen: SocketAddr,
        certificate: Option<Arc<ServerCertificate>>,
    ) -> io::Result<Self> {
        let reached = Self { certificate, demands_proof: demands_proof(listen.ip()), ..self };
        if !reached.demands_proof && reached.certificate.is_none() {
            return Ok(reached);
        }
        let mut salt = [0; SECRET_BYTES];
        sys::fill_random(&mut salt)?;
        Ok(Self { verifier: Some(Verifier::new(&reached.secret, salt)), ..reached })
    }

    /// Replaces host and port in the addresses that clients get.
    pub(crate) fn advertised_as(self, advertised: Option<Advertised>) -> Self {
        Self { advertised, ..self }
    }

    /// Certificate for TLS, if the gateway offers TLS.
    pub(crate) fn certificate(&self) -> Option<&Arc<ServerCertificate>> {
        self.certificate.as_ref()
    }

    /// Returns a new random secret of letters and digits.
    pub fn random_secret() -> io::Result<String> {
        let mut bytes = [0; SECRET_BYTES];
        sys::fill_random(&mut bytes)?;
        Ok(bytes.iter().fold(String::new(), |mut secret, byte| {
            secret.push_str(&format!("{byte:02x}"));
            secret
        }))
    }

    /// Whether `given` is the secret. Takes equally long for all wrong values.
    #[must_use]
    pub fn admits(&self, given: &[u8]) -> bool {
        // Comparing digests takes constant time, and reveals no lengths either.
        blake3::hash(given) == self.digest
    }

    /// Verifier for a client's SCRAM exchange; `None` if the client is to send the secret as a password.
    pub(crate) fn verifier(&self, is_encrypted: bool) -> Option<&Verifier> {
        self.verifier.as_ref().filter(|_| self.demands_proof || is_encrypted)
    }

    /// Secret of the gateway: password of every user, and token of HTTP.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// Host and port at which programs on this machine reach the gateway.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Address of `database` for clients on any machine. The gateway creates the database for the first session.
    #[must_use]
    pub fn address_of(&self, database: &str) -> Address {
        let local = self.local_address_of(database);
        match &self.advertised {
            Some(Advertised { host, port }) => {
                Address { host: host.clone(), port: port.unwrap_or(local.port), ..local }
            }
            None => local,
        }
    }

    /// Address of `database` for programs on this machine. Ignores the advertised host.
    #[must_use]
    pub fn local_address_of(&self, database: &str) -> Address {
        Address::at(self.address, Some(self.secret.clone()), database)
    }

    /// Address of `database` over the gateway's unix socket, if the gateway has one.
    #[must_use]
    pub fn socket_address_of(&self, database: &str) -> Option<Address> {
        let SocketFile { directory, port } = self.socket.as_ref()?;
        Some(Address::at_socket(directory, *port, database))
    }

    /// URL of the HTTP API, without the token.
    #[must_use]
    pub fn http_url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

/// Leaves the secret out, so that no log has it.
impl fmt::Debug for Access {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Access").field("address", &self.address).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(secret: &str) -> Access {
        let socket = SocketFile { directory: "/run/a b".into(), port: 5433 };
        Access::new(secret.to_owned(), "127.0.0.1:5433".parse().unwrap(), Some(socket))
    }

    #[test]
    fn only_the_secret_is_admitted_and_never_shown() {
        let secret = Access::random_secret().unwrap();
        assert_eq!(secret.len(), 2 * SECRET_BYTES);
        assert_ne!(secret, Access::random_secret().unwrap());
        let access = access(&secret);
        assert!(access.admits(secret.as_bytes()));
        for wrong in ["", &secret[1..], &format!("{secret}0"), &secret.to_uppercase().replace('0', "O")] {
            assert!(wrong == secret || !access.admits(wrong.as_bytes()), "{wrong}");
        }
        assert!(!format!("{access:?}").contains(&secret));
    }

    #[test]
    fn every_address_has_what_it_takes() {
        let access = access("se/cret");
        assert_eq!(access.address_of("a b").url(), "postgresql://postgres:se%2Fcret@127.0.0.1:5433/a%20b");
        let url = access.socket_address_of("ü").unwrap().url();
        assert_eq!(url, "postgresql:///%C3%BC?host=%2Frun%2Fa%20b&port=5433&user=postgres");
        assert_eq!(access.http_url(), "http://127.0.0.1:5433/");
    }

    #[test]
    fn clients_are_told_what_is_advertised() {
        for (text, told) in [
            ("db.example", "db.example:5433"),
            ("db.example:6000", "db.example:6000"),
            ("192.0.2.1", "192.0.2.1:5433"),
            ("2001:db8::1", "[2001:db8::1]:5433"),
            ("[2001:db8::1]:6000", "[2001:db8::1]:6000"),
            ("[::1]", "[::1]:5433"),
        ] {
            let access = access("secret").advertised_as(Some(text.parse().unwrap()));
            assert_eq!(access.address_of("d").url(), format!("postgresql://postgres:secret@{told}/d"));
            assert_eq!(access.local_address_of("d").url(), "postgresql://postgres:secret@127.0.0.1:5433/d");
        }
        for wrong in
            ["", ":5433", "a b", "host:", "host:0", "host:65536", "host:port", "a/b", "u@h", "[::1", "::g"]
        {
            assert!(wrong.parse::<Advertised>().is_err(), "{wrong}");
        }
    }
}
