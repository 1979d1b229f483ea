//! Server whose databases a test compares by their digests.

use std::time::Duration;

use lease::{Connected, Digest, SessionGuard};
use server::AdminConnection;
use template::ServerOptions;

use super::WAIT_TIMEOUT;
use super::leases::{LeaseFixture, params};

/// Options of a server on which a reset is over when it is answered, so that a test can look at the result. It may have prepared
/// transactions, so a reset does not give the lease another database.
pub(crate) fn in_place(mut options: ServerOptions) -> ServerOptions {
    options.settings.push(("max_prepared_transactions".to_owned(), "1".to_owned()));
    options
}

/// Leases of a server, with the digest of an unused database.
pub(crate) struct DigestFixture {
    pub(crate) server: LeaseFixture,
    /// Digest of an unused database. The default until a test reads one.
    pub(crate) never_used: Digest,
}

impl DigestFixture {
    /// Makes a fixture without any client so far. Each reset takes place in the lease's own database.
    pub(crate) fn untouched(options: ServerOptions, setup: &str) -> Self {
        Self::of(LeaseFixture::new(in_place(options), setup, Duration::from_mins(10), false))
    }

    /// Makes a fixture of `server`, without a digest.
    pub(crate) fn of(server: LeaseFixture) -> Self {
        Self { server, never_used: Digest::default() }
    }

    /// Connects `user` to the lease `name`. Returns the session, the startup response, and the right to be in the database.
    pub(crate) fn connect(&self, name: &str, user: &str) -> (AdminConnection, Vec<u8>, SessionGuard) {
        let Connected { backend, guard } = self.server.connect_with(name, None, &params(user)).unwrap();
        (AdminConnection::adopt(backend.stream, WAIT_TIMEOUT).unwrap(), backend.startup_response, guard)
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
