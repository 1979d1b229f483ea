//! Sessions that read a leased or a kept database.

use std::time::{Duration, Instant};

use server::{AdminConnection, own_params};

use crate::leases::Leases;
use crate::names::{cut, whole};
use crate::session::{ConnectRequest, Connected, Entered, SessionGuard};
use crate::{Isolation, LeaseError};

/// Timeout for an answer: a large table may need sorting before the first row.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(10);

/// A session that reads a database.
#[derive(Debug)]
pub struct Inspection {
    /// The session.
    pub session: AdminConnection,
    /// Guard that keeps the lease when its other sessions end; `None` for a database that is not leased.
    pub guard: Option<SessionGuard>,
}

impl Leases {
    /// Opens a superuser's session with a database that exists, leased or not.
    ///
    /// # Errors
    /// [`LeaseError::Hidden`] in rollback isolation, as only the lease's own session sees its changes.
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
        // The lease may have ended meanwhile. Then this session has begun another lease, which is younger.
        if self.leased(name).is_none_or(|(since, _)| since > begun) {
            return Err(LeaseError::NotLeased(name.to_owned()));
        }
        let session = AdminConnection::adopt(backend.stream, ANSWER_TIMEOUT)
            .map_err(|source| LeaseError::Sql { verb: "open a session", source })?;
        Ok(Inspection { session, guard: Some(guard) })
    }
}
