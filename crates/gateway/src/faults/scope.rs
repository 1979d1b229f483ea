//! The lease of one session, as far as its faults are concerned.

use std::sync::Arc;

use lease::{LeaseError, Leases};

use super::fault::Fault;
use super::lease_faults::LeaseFaults;
use super::registry::Faults;

/// The lease of one session.
#[derive(Debug, Clone)]
pub(crate) struct FaultScope {
    pub(crate) registry: Arc<Faults>,
    pub(crate) leases: Leases,
    /// Name of the database.
    pub(crate) name: String,
}

impl FaultScope {
    /// Returns the faults of the lease, which may be none. A session outside of a lease gets faults that never come.
    pub(crate) fn faults(&self) -> Arc<LeaseFaults> {
        self.registry.of_lease(&self.name, &self.leases).unwrap_or_default()
    }

    /// Adds a fault: see [`Faults::add`].
    pub(super) fn add(&self, fault: Fault) -> Result<u64, LeaseError> {
        self.registry.add(&self.name, fault, &self.leases)
    }

    /// Returns true while the lease still has these faults.
    pub(super) fn has(&self, faults: &Arc<LeaseFaults>) -> bool {
        self.registry.is_current(&self.name, faults, &self.leases)
    }
}
