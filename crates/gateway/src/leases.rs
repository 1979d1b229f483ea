//! All that can be leased by name, whatever its isolation.

use std::path::PathBuf;
use std::sync::Arc;

use lease::{LeaseError, Databases, Servers, Status, Turn};

use crate::Isolation;
use crate::rollback::Pool;

/// The leases of a gateway; clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Leases {
    pub(crate) databases: Databases,
    /// Those in rollback isolation.
    pub(crate) rollbacks: Arc<Pool>,
    /// Whole servers, if there are any to be had.
    pub(crate) servers: Option<Servers>,
    /// How leases are isolated that do not say.
    pub(crate) isolation: Isolation,
}

impl Leases {
    /// Begins a lease that lasts until it is released; returns its name and its template's.
    pub(crate) fn lease(
        &self,
        isolation: Isolation,
        name: Option<&str>,
        template: Option<&str>,
    ) -> Result<(String, String), LeaseError> {
        if let Some(name) = name.filter(|name| self.server(name).is_some()) {
            return Err(LeaseError::Leased(name.to_owned()));
        }
        let leased = match isolation {
            Isolation::Clone => self.rollbacks.lease_clone(name, template),
            Isolation::Rollback => self.rollbacks.reserve(name, template),
            Isolation::Server => self.lease_server(name, true),
        }?;
        let status = self.databases.status();
        let found =
            status.leases.into_iter().find(|lease| lease.database == leased).map(|lease| lease.template);
        let default = || status.ready.into_iter().next().map(|(name, _)| name);
        let template = found.or_else(|| template.map(str::to_owned)).or_else(default).unwrap_or_default();
        Ok((leased, template))
    }

    /// Leases a whole server, whose database has that name.
    pub(crate) fn lease_server(&self, name: Option<&str>, lasting: bool) -> Result<String, LeaseError> {
        if let Some(name) = name {
            if self.rollbacks.has(name) {
                return Err(LeaseError::Leased(name.to_owned()));
            }
            self.databases.expect_free(name)?;
        }
        self.servers.as_ref().ok_or(LeaseError::NoServers)?.lease(name, lasting)
    }

    /// The servers, if a lease of that name is one of them.
    pub(crate) fn server(&self, name: &str) -> Option<&Servers> {
        self.servers.as_ref().filter(|servers| servers.has(name))
    }

    /// Where the socket is that leads to the lease with nothing in the way; `None` for the usual one.
    pub(crate) fn directory(&self, name: &str) -> Option<PathBuf> {
        self.server(name).and_then(|servers| servers.directory(name))
    }

    pub(crate) fn release(&self, name: &str) -> Result<(), LeaseError> {
        match self.server(name) {
            Some(servers) => servers.release(name),
            None => self.rollbacks.release(name),
        }
    }

    pub(crate) fn reset(&self, name: &str, close: bool) -> Result<(), LeaseError> {
        match self.server(name) {
            Some(servers) => servers.reset(name, close),
            None => self.rollbacks.reset(name, close),
        }
    }

    /// Restarts, stops or crashes a leased server.
    pub(crate) fn turn(&self, name: &str, turn: Turn) -> Result<(), LeaseError> {
        match self.server(name) {
            Some(servers) => servers.turn(name, turn),
            None => Err(LeaseError::NoServer(name.to_owned())),
        }
    }

    pub(crate) fn status(&self) -> Status {
        let mut status = self.databases.status();
        self.rollbacks.correct(&mut status);
        status.leases.extend(self.servers.iter().flat_map(Servers::status));
        status
    }
}
