//! Defines the order that makes an open session obey the faults of its lease.

use std::sync::{Arc, Mutex, mpsc};

use sys::lock;
use tokio::sync::watch;

use super::lease_faults::LeaseFaults;

/// An order to one session. All clones share the same state.
#[derive(Debug, Clone)]
pub(crate) struct FaultOrder {
    pub(super) faults: Arc<LeaseFaults>,
    /// Number of failovers in the lease. The session ends when this number rises above `first_failovers`.
    failovers: watch::Receiver<u64>,
    /// Number of failovers when the order was created.
    first_failovers: u64,
    /// Whether one of this session's own faults makes the server end it.
    is_terminated: watch::Sender<bool>,
    /// Rate limit in bytes per second for each direction. `None` means no limit.
    pub(super) bandwidth: Option<u64>,
    /// Requests that wait until the session obeys the order. `None` once the session obeys.
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

    /// Ends this session as the server would end it.
    pub(super) fn terminate(&self) {
        self.is_terminated.send_replace(true);
    }

    /// Waits until a failover or a fault in this session makes the server end it.
    pub(crate) async fn terminates(&self) {
        let (mut failovers, mut own) = (self.failovers.clone(), self.is_terminated.subscribe());
        let fails_over = async { failovers.wait_for(|count| *count > self.first_failovers).await.is_ok() };
        let is_terminated = async { own.wait_for(|is_terminated| *is_terminated).await.is_ok() };
        // Neither channel closes, because this order holds one sender and `faults` holds the other.
        tokio::select! {
            _ = fails_over => {}
            _ = is_terminated => {}
        }
    }

    /// Returns true if a failover or a fault in this session makes the server end it.
    pub(crate) fn is_terminated(&self) -> bool {
        *self.failovers.borrow() > self.first_failovers || *self.is_terminated.borrow()
    }

    /// Adds a request that waits until the session obeys. The session drops `waiting` when it does.
    pub(crate) fn add_waiting(&self, waiting: Option<mpsc::Sender<()>>) {
        if let Some(all) = lock(&self.waiting).as_mut() {
            all.extend(waiting);
        }
    }

    /// Wakes all waiting requests, because the session now obeys the order.
    pub(crate) fn done(&self) {
        lock(&self.waiting).take();
    }
}
