//! Reading a database that a client has, or that was kept.

use std::time::{Duration, Instant};

use server::{AdminConnection, own_params};

use crate::leases::Leases;
use crate::names::{cut, whole};
use crate::session::{ConnectRequest, Connected, Entered, SessionGuard};
use crate::{Isolation, LeaseError};

/// How long an answer may take: a large table may be sorted for the first.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(10);

/// A session that reads a database.
#[derive(Debug)]
pub struct Inspection {
    /// The session.
    pub session: AdminConnection,
    /// As long as it has one, the database does not go with its other sessions.
    pub guard: Option<SessionGuard>,
}

impl Leases {
    /// A superuser's session with a database that is leased, or is not, and is there.
    ///
    /// # Errors
    /// [`LeaseError::Hidden`]: what is in a lease in rollback isolation is seen by its own session alone.
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
        let params = own_params(self.0.options.major, &[]);
        let request = ConnectRequest { isolation: Some(isolation), ..ConnectRequest::new(name, &params) };
        let Entered::Plain(Connected { backend, guard }) = self.connect(&request)? else {
            return Err(LeaseError::Hidden(name.to_owned()));
        };
        // It may have ended meanwhile; then this session has begun another one, which is younger.
        if self.leased(name).is_none_or(|(since, _)| since > begun) {
            return Err(LeaseError::NotLeased(name.to_owned()));
        }
        let session = AdminConnection::adopt(backend.stream, ANSWER_TIMEOUT)
            .map_err(|source| LeaseError::Sql { verb: "open a session", source })?;
        Ok(Inspection { session, guard: Some(guard) })
    }
}
