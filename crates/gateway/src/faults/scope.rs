//! The lease of one session, as far as its faults are concerned.

use std::sync::{Arc, mpsc};

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
    /// Orders all sessions of the lease to obey its faults, and returns these. A session outside of a lease gets faults that
    /// never come.
    pub(crate) fn order(&self) -> Arc<LeaseFaults> {
        self.registry.order(&self.name, &mpsc::channel().0, &self.leases).unwrap_or_default()
    }

    /// Adds a fault: see [`Faults::add`].
    pub(super) fn add(&self, fault: Fault) -> Result<(), LeaseError> {
        self.registry.add(&self.name, fault, &self.leases).map(drop)
    }

    /// Returns true while the lease still has these faults.
    pub(super) fn has(&self, faults: &Arc<LeaseFaults>) -> bool {
        self.registry.is_current(&self.name, faults, &self.leases)
    }
}
