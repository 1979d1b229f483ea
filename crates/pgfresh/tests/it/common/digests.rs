//! Server whose databases a test compares by their digests.

use std::time::Duration;

use lease::{Connected, Digest, SessionGuard};
use server::AdminConnection;
use template::ServerOptions;

use super::WAIT_TIMEOUT;
use super::leases::{LeaseFixture, params};

/// Leases of a server, with the digest of an unused database.
pub(crate) struct DigestFixture {
    pub(crate) server: LeaseFixture,
    /// Digest of an unused database. The default until a test reads one.
    pub(crate) never_used: Digest,
}

impl DigestFixture {
    /// Makes a fixture without any client so far.
    pub(crate) fn untouched(options: ServerOptions, setup: &str) -> Self {
        Self::of(LeaseFixture::new(options, setup, Duration::from_mins(10), false))
    }

    /// Makes a fixture of `server`, without a digest.
    pub(crate) fn of(server: LeaseFixture) -> Self {
        Self { server, never_used: Digest::default() }
    }

    /// Connects `user` to the lease `name`. Returns the session, the startup response, and the right to be in the database.
    pub(crate) fn connect(&self, name: &str, user: &str) -> (AdminConnection, Vec<u8>, SessionGuard) {
        let Connected { backend, guard } = self.server.connect_with(name, None, &params(user)).unwrap();
        (AdminConnection::adopt(backend.stream, WAIT_TIMEOUT).unwrap(), backend.greeting, guard)
    }

    /// Returns the digest of the database of the lease `name`.
    pub(crate) fn digest(&self, name: &str) -> Digest {
        let (mut session, _, _guard) = self.connect(name, "postgres");
        Digest::read(&mut session).unwrap()
    }

    /// Returns the number of databases that pgfresh has reset.
    pub(crate) fn recycled(&self) -> u64 {
        self.server.leases.status().recycled.0
    }
}
