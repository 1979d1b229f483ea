//! The order to an open session to obey the faults of its lease.

use std::sync::{Arc, Mutex, mpsc};

use sys::lock;
use tokio::sync::watch;

use super::lease_faults::LeaseFaults;

/// An order to one session. Clones are the same order.
#[derive(Debug, Clone)]
pub(crate) struct FaultOrder {
    pub(super) faults: Arc<LeaseFaults>,
    /// Number of the lease's failovers. Each one after the order ends the session.
    pub(super) failovers: watch::Receiver<u64>,
    /// Number of failovers before the order.
    pub(super) first_failovers: u64,
    /// Bytes per second and direction, if a fault limits them.
    pub(super) bandwidth: Option<u64>,
    /// The requests that wait until the session obeys. `None` once it does.
    waiting: Arc<Mutex<Option<Vec<mpsc::Sender<()>>>>>,
}

impl FaultOrder {
    pub(crate) fn new(faults: Arc<LeaseFaults>, bandwidth: Option<u64>) -> Self {
        let failovers = faults.failovers();
        let first_failovers = *failovers.borrow();
        let waiting = Arc::new(Mutex::new(Some(Vec::new())));
        Self { faults, failovers, first_failovers, bandwidth, waiting }
    }

    /// Adds a request that waits until the session obeys. The session then drops `waiting`.
    pub(crate) fn add_waiting(&self, waiting: Option<mpsc::Sender<()>>) {
        if let Some(all) = lock(&self.waiting).as_mut() {
            all.extend(waiting);
        }
    }

    /// Tells all waiting requests that the session obeys.
    pub(crate) fn done(&self) {
        lock(&self.waiting).take();
    }
}
