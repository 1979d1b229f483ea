//! Who may come in, and the addresses by which they do.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use pgwire::Verifier;
use server::Address;

/// Bytes of a random secret: 128 bits.
const SECRET_BYTES: usize = 16;

/// The secret, and where it opens the door.
pub struct Access {
    secret: String,
    digest: blake3::Hash,
    /// Where others than this machine's could listen in.
    verifier: Option<Verifier>,
    address: SocketAddr,
    socket: Option<SocketFile>,
}

/// The gateway's own unix socket: the file `.s.PGSQL.PORT` in a directory that is closed to others. A client that reaches it
/// needs no password.
#[derive(Debug, Clone)]
pub struct SocketFile {
    /// The directory.
    pub directory: PathBuf,
    /// The port in the file's name; it listens on no network.
    pub port: u16,
}

impl SocketFile {
    /// The file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.directory.join(format!(".s.PGSQL.{}", self.port))
    }
}

impl Access {
    /// Who knows `secret` may come in at `address`, and who reaches `socket`.
    #[must_use]
    pub fn new(secret: String, address: SocketAddr, socket: Option<SocketFile>) -> Self {
        let digest = blake3::hash(secret.as_bytes());
        Self { secret, digest, verifier: None, address, socket }
    }

    /// The same for clients who come in on `listen`: beyond loopback they have to prove that they know the secret, and do
    /// not say it.
    pub(crate) fn for_clients_on(self, listen: SocketAddr) -> io::Result<Self> {
        if listen.ip().is_loopback() {
            return Ok(self);
        }
        let mut salt = [0; SECRET_BYTES];
        sys::fill_random(&mut salt)?;
        Ok(Self { verifier: Some(Verifier::new(&self.secret, salt)), ..self })
    }

    /// A new secret that cannot be guessed, in letters and digits.
    pub fn random_secret() -> io::Result<String> {
        let mut bytes = [0; SECRET_BYTES];
        sys::fill_random(&mut bytes)?;
        Ok(bytes.iter().fold(String::new(), |mut secret, byte| {
            secret.push_str(&format!("{byte:02x}"));
            secret
        }))
    }

    /// Whether `given` is the secret; takes as long whatever is wrong with it.
    #[must_use]
    pub fn admits(&self, given: &[u8]) -> bool {
        // Comparing digests takes constant time, and tells nothing of lengths either.
        blake3::hash(given) == self.digest
    }

    /// What a client has to prove that it knows the secret by, where it may not be said in the clear.
    pub(crate) fn verifier(&self) -> Option<&Verifier> {
        self.verifier.as_ref()
    }

    /// The secret: password of every user, and token of HTTP.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// Host and port by which programs on this machine reach the gateway.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where `database` is, over TCP and through the gateway: it comes to be with the first session.
    #[must_use]
    pub fn address_of(&self, database: &str) -> Address {
        Address::at(self.address, Some(self.secret.clone()), database)
    }

    /// The same over the gateway's unix socket, if it has one.
    #[must_use]
    pub fn socket_address_of(&self, database: &str) -> Option<Address> {
        let SocketFile { directory, port } = self.socket.as_ref()?;
        Some(Address::at_socket(directory, *port, database))
    }

    /// Where people and programs find the HTTP side; the token is not in it.
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
}
