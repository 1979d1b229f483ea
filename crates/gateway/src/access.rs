//! Determines how clients authenticate, and tells them where to connect.
//!
//! Every gateway has one secret, which is both the password of every database user and the HTTP API's token. The
//! address that a client connects to determines whether the client sends the secret itself or proves with SCRAM that it
//! knows the secret.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use pgwire::Verifier;
use server::Address;

use crate::certificate::ServerCertificate;

/// Size of a random secret, in bytes (128 bits).
const SECRET_BYTES: usize = 16;

/// The gateway's secret, how clients prove that they know it, and the addresses of databases.
pub struct Access {
    secret: String,
    digest: blake3::Hash,
    /// Verifies SCRAM exchanges. `None` if every client sends the secret as a password.
    verifier: Option<Verifier>,
    /// Whether clients must authenticate with SCRAM even if they don't use TLS.
    requires_scram: bool,
    /// Certificate for TLS. `None` if the gateway doesn't offer TLS.
    certificate: Option<Arc<ServerCertificate>>,
    address: SocketAddr,
    /// Address of the port for replicas, if there is one.
    replica: Option<SocketAddr>,
    advertised: Option<Advertised>,
    socket: Option<SocketFile>,
}

/// The host and optional port that clients on other machines use to reach the gateway. Without a port, clients use the
/// port that the gateway listens on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advertised {
    host: String,
    port: Option<u16>,
}

/// Error for a text that isn't a host, with or without a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write HOST or HOST:PORT")]
pub struct ParseAdvertisedError;

impl FromStr for Advertised {
    type Err = ParseAdvertisedError;

    /// Parses `HOST` or `HOST:PORT`. An IPv6 address with a port must be in brackets: `[ADDRESS]:PORT`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (host, port) = match text.rsplit_once(':') {
            // Several colons without brackets mean an IPv6 address without a port.
            Some((host, _)) if host.contains(':') && !host.starts_with('[') => (text, None),
            Some((host, port)) if !text.ends_with(']') => {
                (host, Some(port.parse().ok().filter(|port| *port > 0).ok_or(ParseAdvertisedError)?))
            }
            _ => (text, None),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let is_name = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        if host.is_empty() || !is_name && host.parse::<Ipv6Addr>().is_err() {
            return Err(ParseAdvertisedError);
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

/// The gateway's own unix socket: the file `.s.PGSQL.PORT` in a directory that other users can't enter. The directory's
/// permissions protect the socket, so its clients need no password.
#[derive(Debug, Clone)]
pub struct SocketFile {
    /// Directory that contains the file.
    pub directory: PathBuf,
    /// Port in the file's name. The gateway doesn't listen on this port over a network.
    pub port: u16,
}

impl SocketFile {
    /// Returns the path of the socket file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.directory.join(format!(".s.PGSQL.{}", self.port))
    }
}

/// Returns true if clients of a gateway listening on `listen` must authenticate with SCRAM. Such a gateway also offers
/// TLS.
#[must_use]
pub fn requires_scram(listen: IpAddr) -> bool {
    listen.to_canonical() != Ipv4Addr::LOCALHOST
}

impl Access {
    /// Creates rules that require `secret` from clients of `address`, but no password from clients of `socket`.
    #[must_use]
    pub fn new(secret: String, address: SocketAddr, socket: Option<SocketFile>) -> Self {
        let digest = blake3::hash(secret.as_bytes());
        Self {
            secret,
            digest,
            verifier: None,
            requires_scram: false,
            certificate: None,
            address,
            replica: None,
            advertised: None,
            socket,
        }
    }

    /// Sets how clients that connect to `listen` authenticate, and offers them TLS with `certificate`.
    ///
    /// If `listen` is any address but 127.0.0.1, all clients use SCRAM. TLS clients use SCRAM on every address, because
    /// they might insist on a proof bound to the certificate (`channel_binding=require`). All other clients send the
    /// secret as a password, because SCRAM would cost a few milliseconds and protect nothing.
    pub(crate) fn with_authentication_for(
        self,
        listen: SocketAddr,
        certificate: Option<Arc<ServerCertificate>>,
    ) -> io::Result<Self> {
        let reached = Self { certificate, requires_scram: requires_scram(listen.ip()), ..self };
        if !reached.requires_scram && reached.certificate.is_none() {
            return Ok(reached);
        }
        let mut salt = [0; SECRET_BYTES];
        sys::fill_random(&mut salt)?;
        Ok(Self { verifier: Some(Verifier::new(&reached.secret, salt)), ..reached })
    }

    /// Replaces the host and the port in the addresses given to clients.
    pub(crate) fn with_advertised(self, advertised: Option<Advertised>) -> Self {
        Self { advertised, ..self }
    }

    /// Sets the address of the port for replicas.
    pub(crate) fn with_replica(self, replica: Option<SocketAddr>) -> Self {
        Self { replica, ..self }
    }

    /// Returns the certificate for TLS, or `None` if the gateway doesn't offer TLS.
    pub(crate) fn certificate(&self) -> Option<&Arc<ServerCertificate>> {
        self.certificate.as_ref()
    }

    /// Returns a new random secret of letters and digits.
    ///
    /// # Errors
    /// Returns the error of the kernel's random number generator.
    pub fn random_secret() -> io::Result<String> {
        let mut bytes = [0; SECRET_BYTES];
        sys::fill_random(&mut bytes)?;
        Ok(bytes.iter().fold(String::new(), |mut secret, byte| {
            secret.push_str(&format!("{byte:02x}"));
            secret
        }))
    }

    /// Returns true if `given` is the secret. The comparison takes the same time for every wrong value, so timing
    /// doesn't reveal anything about the secret.
    #[must_use]
    pub fn is_secret(&self, given: &[u8]) -> bool {
        // Comparing digests takes constant time and doesn't reveal the secret's length.
        blake3::hash(given) == self.digest
    }

    /// Returns the verifier for a client's SCRAM exchange, or `None` if the client should send the secret as a
    /// password.
    pub(crate) fn verifier(&self, is_encrypted: bool) -> Option<&Verifier> {
        self.verifier.as_ref().filter(|_| self.requires_scram || is_encrypted)
    }

    /// Returns the gateway's secret: every user's password and the HTTP API's token.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// Returns the host and port for reaching the gateway from this machine.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address of `database` for clients on any machine. The database need not exist yet, because the
    /// gateway creates it when the first session begins.
    #[must_use]
    pub fn address_of(&self, database: &str) -> Address {
        self.address_for(None, database)
    }

    /// Returns the address of `database` for a client that has reached the gateway at `reached`. A host that the user
    /// advertises takes precedence.
    #[must_use]
    pub fn address_for(&self, reached: Option<&Advertised>, database: &str) -> Address {
        let local = self.local_address_of(database);
        match self.advertised.as_ref().or(reached) {
            Some(Advertised { host, port }) => {
                Address { host: host.clone(), port: port.unwrap_or(local.port), ..local }
            }
            None => local,
        }
    }

    /// Returns the replica address of `database` for a client that has reached the gateway at `reached`, or `None` if
    /// there are no replicas. The port is always the gateway's own.
    #[must_use]
    pub fn replica_address_for(&self, reached: Option<&Advertised>, database: &str) -> Option<Address> {
        let port = self.replica?.port();
        Some(Address { port, ..self.address_for(reached, database) })
    }

    /// Returns the address of `database` for programs on this machine, ignoring the advertised host.
    #[must_use]
    pub fn local_address_of(&self, database: &str) -> Address {
        Address::at(self.address, Some(self.secret.clone()), database)
    }

    /// Returns the address of `database` over the gateway's unix socket, or `None` if there is no socket.
    #[must_use]
    pub fn socket_address_of(&self, database: &str) -> Option<Address> {
        let SocketFile { directory, port } = self.socket.as_ref()?;
        Some(Address::at_socket(directory, *port, database))
    }

    /// Returns the URL of the HTTP API, without the token.
    #[must_use]
    pub fn http_url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

/// Omits the secret, so that it never appears in a log.
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
    fn only_the_secret_is_accepted_and_hidden() {
        let secret = Access::random_secret().unwrap();
        assert_eq!(secret.len(), 2 * SECRET_BYTES);
        assert_ne!(secret, Access::random_secret().unwrap());
        let access = access(&secret);
        assert!(access.is_secret(secret.as_bytes()));
        for wrong in ["", &secret[1..], &format!("{secret}0"), &secret.to_uppercase().replace('0', "O")] {
            assert!(wrong == secret || !access.is_secret(wrong.as_bytes()), "{wrong}");
        }
        assert!(!format!("{access:?}").contains(&secret));
    }

    #[test]
    fn every_address_has_required_parts() {
        let access = access("se/cret");
        assert_eq!(access.address_of("a b").url(), "postgresql://postgres:se%2Fcret@127.0.0.1:5433/a%20b");
        let url = access.socket_address_of("ü").unwrap().url();
        assert_eq!(url, "postgresql:///%C3%BC?host=%2Frun%2Fa%20b&port=5433&user=postgres");
        assert_eq!(access.http_url(), "http://127.0.0.1:5433/");
    }

    #[test]
    fn addresses_name_the_advertised_host() {
        for (text, host) in [
            ("db.example", "db.example:5433"),
            ("db.example:6000", "db.example:6000"),
            ("192.0.2.1", "192.0.2.1:5433"),
            ("2001:db8::1", "[2001:db8::1]:5433"),
            ("[2001:db8::1]:6000", "[2001:db8::1]:6000"),
            ("[::1]", "[::1]:5433"),
        ] {
            let access = access("secret").with_advertised(Some(text.parse().unwrap()));
            assert_eq!(access.address_of("d").url(), format!("postgresql://postgres:secret@{host}/d"));
            assert_eq!(access.local_address_of("d").url(), "postgresql://postgres:secret@127.0.0.1:5433/d");
        }
        let (reached, advertised) = ("build-7:443".parse().unwrap(), "db".parse().unwrap());
        let access = access("secret");
        let url = access.address_for(Some(&reached), "d").url();
        assert_eq!(url, "postgresql://postgres:secret@build-7:443/d");
        let url = access.with_advertised(Some(advertised)).address_for(Some(&reached), "d").url();
        assert_eq!(url, "postgresql://postgres:secret@db:5433/d");
        for wrong in
            ["", ":5433", "a b", "host:", "host:0", "host:65536", "host:port", "a/b", "u@h", "[::1", "::g"]
        {
            assert!(wrong.parse::<Advertised>().is_err(), "{wrong}");
        }
    }
}
