//! Opens sessions that pgfresh itself uses to read a leased or kept database, for example to compare two databases.

use std::time::{Duration, Instant};

use server::{AdminConnection, admin_params};

use crate::error::LeaseError;
use crate::isolation::Isolation;
use crate::names::{cut, whole};
use crate::runtime::leases::Leases;
use crate::sessions::session::{ConnectRequest, Connected, Entered, SessionGuard};

/// Timeout for the server's answer. The server may have to sort a large table before sending the first row.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(10);

/// A session for reading a database.
#[derive(Debug)]
pub struct Inspection {
    /// The session.
    pub session: AdminConnection,
    /// Counts this session in the lease, which keeps the lease alive after its other sessions have ended. `None` if the
    /// database isn't leased.
    pub guard: Option<SessionGuard>,
}

impl Leases {
    /// Opens a superuser session in an existing database. If the database is leased, the session joins the lease.
    ///
    /// # Errors
    /// Returns [`LeaseError::Hidden`] if the lease is in rollback isolation, because only the lease's own session can
    /// see its changes.
    pub fn inspect(&self, name: &str) -> Result<Inspection, LeaseError> {
        let name = cut(whole(name)?);
        match self.isolation(name) {
            None => Ok(Inspection { session: self.0.admin.open_named(name)?, guard: None }),
            Some(Isolation::Rollback) => Err(LeaseError::Hidden(name.to_owned())),
            Some(isolation @ (Isolation::Clone | Isolation::Server)) => self.join(name, isolation),
        }
    }

    fn join(&self, name: &str, isolation: Isolation) -> Result<Inspection, LeaseError> {
        let begun = Instant::now();
        let params = admin_params(self.0.options.major, &[]);
        let request = ConnectRequest { isolation: Some(isolation), ..ConnectRequest::new(name, &params) };
        let connected = match self.connect(&request) {
            Err(LeaseError::Promoted(_)) => self.connect_replica(&request),
            connected => connected,
        };
        let Entered::Plain(Connected { backend, guard }) = connected? else {
            return Err(LeaseError::Hidden(name.to_owned()));
        };
        // If the lease has ended in the meantime, this session has begun a new one, recognizable by its age.
        if self.leased(name).is_none_or(|(since, _)| since > begun) {
            return Err(LeaseError::NotLeased(name.to_owned()));
        }
        let session = AdminConnection::adopt(backend.stream, ANSWER_TIMEOUT)
            .map_err(|source| LeaseError::Sql { verb: "open a session", source })?;
        Ok(Inspection { session, guard: Some(guard) })
    }
}
