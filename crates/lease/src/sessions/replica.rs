//! Opens sessions for clients that read from a replica.
//!
//! Only a lease with its own server has a real replica. For any other lease, pgfresh gives the client a read-only
//! session in a second copy of the template. This copy shows the database's state when the lease began.

use std::sync::Arc;

use ::template::Provisioner;
use sys::lock;

use crate::error::LeaseError;
use crate::isolation::Isolation;
use crate::names::{ALWAYS, cut, replica_copy};
use crate::options::ServerRole;
use crate::runtime::leases::Leases;
use crate::runtime::replica::ReplicaWatch;
use crate::runtime::resources::Resources;
use crate::sessions::session::{ConnectRequest, Entered};
use crate::table::Want;

/// Makes the transactions of a session read-only.
const READ_ONLY: (&str, &str) = ("default_transaction_read_only", "on");

impl Leases {
    /// Returns true if leases have replicas.
    #[must_use]
    pub fn have_replicas(&self) -> bool {
        self.0.options.provisioner.as_ref().is_some_and(Provisioner::has_standby)
    }

    /// Opens a session on the replica of the lease with this name, beginning the lease if necessary.
    ///
    /// # Errors
    /// Returns the errors of [`Self::connect`], and [`LeaseError::NoReplica`] if the lease's server has no replica.
    pub fn connect_replica(&self, request: &ConnectRequest<'_>) -> Result<Entered, LeaseError> {
        let name = cut(request.database);
        let leased = self.isolation(name);
        let isolation = request.isolation.or(leased).unwrap_or_else(|| self.default_isolation());
        let is_always_there = ALWAYS.contains(&name);
        if isolation == Isolation::Server && !is_always_there {
            return self.connect_to(request, ServerRole::Replica);
        }
        let params = request.params.with_setting(READ_ONLY);
        let request = ConnectRequest { params: &params, ..request.clone() };
        if is_always_there {
            return self.connect(&request);
        }
        if leased.is_none() && !self.0.lock().table.creates(name) {
            return Err(LeaseError::NoDatabase(name.to_owned()));
        }
        let template = match self.template(name) {
            Some(template) => template,
            None => self.0.template_for(name, request.template)?,
        };
        let copy = replica_copy(name);
        let isolation = Some(Isolation::Clone);
        let request =
            ConnectRequest { database: &copy, template: Some(&template), isolation, reset: false, ..request };
        match self.connect_leased(&request, ServerRole::Primary) {
            // The copy is left over from an earlier lease with the same name.
            Err(LeaseError::OtherTemplate { .. }) => {
                self.release_replica_copy(name);
                self.connect_leased(&request, ServerRole::Primary)
            }
            connected => connected,
        }
    }

    /// Closes the sessions in the copy that stands in for a lease's replica, and releases the copy.
    pub(crate) fn release_replica_copy(&self, name: &str) {
        self.ask_replica_copy(name, Want::Release);
    }

    /// Resets the copy that stands in for a lease's replica, because its sessions can make themselves writable. Leaves
    /// the copy as it is if it has open sessions and `close` is false.
    pub(crate) fn reset_replica_copy(&self, name: &str, close: bool) {
        self.ask_replica_copy(name, Want::Reset { close });
    }

    fn ask_replica_copy(&self, name: &str, want: Want) {
        if self.have_replicas()
            && let Err(error) = self.0.ask(&replica_copy(name), want, None)
        {
            tracing::debug!(%error, name, "left the copy for a replica as it is");
        }
    }

    /// Returns the lag of a lease's replica and the statements that ran
    /// there, or `None` if the lease doesn't have a server with a replica.
    #[must_use]
    pub fn replica_watch(&self, name: &str) -> Option<Arc<ReplicaWatch>> {
        let server = {
            let core = self.0.lock();
            let Resources::Server(server) = core.pool.get(core.table.database_named(cut(name))?)? else {
                return None;
            };
            Arc::clone(server)
        };
        let server = lock(&server);
        server.replica_watch()
    }
}
