//! Terminates individual sessions of clients, to simulate a server shutdown.

use std::sync::Arc;

use crate::error::LeaseError;
use crate::names::cut;
use crate::runtime::leased_server::LeasedServer;
use crate::runtime::leases::Leases;
use crate::runtime::resources::Resources;

impl Leases {
    /// Makes the server terminate a session of the lease with this name, as it does
    /// at a shutdown. The server rolls the session's transaction back and sends the
    /// reason to the client. `process` is the process id of the session's backend.
    ///
    /// # Errors
    /// Returns an error if the statement fails. In that case, the session may continue.
    pub fn terminate(&self, name: &str, process: u32) -> Result<(), LeaseError> {
        let server = {
            let core = self.0.lock();
            match core.table.database_named(cut(name)).and_then(|id| core.pool.get(id)) {
                Some(Resources::Server(server)) => Some(Arc::clone(server)),
                _ => None,
            }
        };
        let sql = format!("SELECT pg_terminate_backend({process})");
        match server {
            Some(server) => LeasedServer::run_everywhere(&server, "terminate a session", &sql),
            None => self.0.admin.run("terminate a session", &sql).map(drop),
        }
    }
}
