//! Server whose databases a test compares by digest.

use std::time::Duration;

use lease::{Connected, Digest, SessionGuard};
use server::AdminConnection;
use template::ServerOptions;

use super::WAIT_TIMEOUT;
use super::leases::{LeaseFixture, params};

/// Returns options for a server that has finished a reset when it responds, so that a test can look at the result.
/// The server can have prepared transactions, so a reset doesn't give the lease a different database.
pub(crate) fn in_place(mut options: ServerOptions) -> ServerOptions {
    options.settings.push(("max_prepared_transactions".to_owned(), "1".to_owned()));
    options
}

/// A server's leases, with the digest of an unused database.
pub(crate) struct DigestFixture {
    pub(crate) server: LeaseFixture,
    /// Digest of an unused database, or the default value until a test computes the digest.
    pub(crate) never_used: Digest,
}

impl DigestFixture {
    /// Makes a fixture that hasn't had clients yet. Each reset takes place in the lease's own database.
    pub(crate) fn untouched(options: ServerOptions, setup: &str) -> Self {
        Self::of(LeaseFixture::new(in_place(options), setup, Duration::from_mins(10), false))
    }

    /// Makes a fixture for `server`, without a digest.
    pub(crate) fn of(server: LeaseFixture) -> Self {
        Self { server, never_used: Digest::default() }
    }

    /// Connects `user` to the lease `name`. Returns the session, the startup response, and the permission
    /// to be in the database.
    pub(crate) fn connect(&self, name: &str, user: &str) -> (AdminConnection, Vec<u8>, SessionGuard) {
        let Connected { backend, guard } = self.server.connect_with(name, None, &params(user)).unwrap();
        (AdminConnection::adopt(backend.stream, WAIT_TIMEOUT).unwrap(), backend.startup_response, guard)
    }

    /// Returns the digest of the leased database `name`.
    pub(crate) fn digest(&self, name: &str) -> Digest {
        let (mut session, _, _guard) = self.connect(name, "postgres");
        Digest::read(&mut session).unwrap()
    }

    /// Returns the number of databases that pgfresh has reset.
    pub(crate) fn recycled(&self) -> u64 {
        self.server.leases.status().recycled.0
    }
}
