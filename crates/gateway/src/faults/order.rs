//! An order that tells an open session to obey the faults of its lease.

use std::sync::{Arc, Mutex, mpsc};

use sys::lock;
use tokio::sync::watch;

use super::lease_faults::LeaseFaults;

/// An order to one session. Clones share their state.
#[derive(Debug, Clone)]
pub(crate) struct FaultOrder {
    pub(super) faults: Arc<LeaseFaults>,
    /// Number of the lease's failovers. Each one after the order ends the session.
    failovers: watch::Receiver<u64>,
    /// Number of failovers before the order.
    first_failovers: u64,
    /// Whether a fault of this session makes the server end it.
    is_terminated: watch::Sender<bool>,
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
        let is_terminated = watch::Sender::new(false);
        Self { faults, failovers, first_failovers, is_terminated, bandwidth, waiting }
    }

    /// Makes the server end this session.
    pub(super) fn terminate(&self) {
        self.is_terminated.send_replace(true);
    }

    /// Waits until a failover or a fault of the session makes the server end it.
    pub(crate) async fn terminates(&self) {
        let (mut failovers, mut own) = (self.failovers.clone(), self.is_terminated.subscribe());
        let fails_over = async { failovers.wait_for(|count| *count > self.first_failovers).await.is_ok() };
        let is_terminated = async { own.wait_for(|is_terminated| *is_terminated).await.is_ok() };
        // Neither channel closes: this order holds one sender, and `faults` holds the other.
        tokio::select! {
            _ = fails_over => {}
            _ = is_terminated => {}
        }
    }

    /// Returns true if a failover or a fault of the session makes the server end it.
    pub(crate) fn is_terminated(&self) -> bool {
        *self.failovers.borrow() > self.first_failovers || *self.is_terminated.borrow()
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
