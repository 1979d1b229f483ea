//! Connects one session with the faults of its lease.

use std::sync::{Arc, mpsc};

use lease::{LeaseError, Leases};

use super::fault::Fault;
use super::lease_faults::LeaseFaults;
use super::registry::Faults;

/// The lease of one session, and the registry with its faults.
#[derive(Debug, Clone)]
pub(crate) struct FaultScope {
    pub(crate) registry: Arc<Faults>,
    pub(crate) leases: Leases,
    /// Name of the database.
    pub(crate) name: String,
}

impl FaultScope {
    /// Orders all sessions of the lease to obey its faults, and returns these faults. For a session outside a lease,
    /// returns an empty set of faults.
    pub(crate) fn order(&self) -> Arc<LeaseFaults> {
        self.registry.order(&self.name, &mpsc::channel().0, &self.leases).unwrap_or_default()
    }

    /// Adds a fault: see [`Faults::add`].
    pub(super) fn add(&self, fault: Fault) -> Result<(), LeaseError> {
        self.registry.add(&self.name, fault, &self.leases).map(drop)
    }

    /// Returns true while `faults` belong to the current lease.
    pub(super) fn has(&self, faults: &Arc<LeaseFaults>) -> bool {
        self.registry.is_current(&self.name, faults, &self.leases)
    }
}
