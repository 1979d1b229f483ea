//! Notifies an open session that it must close, or that its lease has faults.

use std::future::pending;
use std::sync::{Arc, mpsc};

use tokio::sync::watch;

use crate::faults::{FaultOrder, LeaseFaults};

#[derive(Debug, Default)]
struct Notice {
    closes: bool,
    order: Option<FaultOrder>,
}

/// Sends notices to one session.
#[derive(Debug)]
pub(crate) struct NoticeSender(watch::Sender<Notice>);

/// The notices of one session.
#[derive(Debug, Clone)]
pub(crate) struct Notices {
    receiver: watch::Receiver<Notice>,
    /// Whether the session has taken its order to obey faults.
    took_order: bool,
}

/// Creates the channel for one session.
pub(crate) fn notices() -> (NoticeSender, Notices) {
    let (sender, receiver) = watch::channel(Notice::default());
    (NoticeSender(sender), Notices { receiver, took_order: false })
}

impl NoticeSender {
    /// Makes the session close.
    pub(crate) fn close(&self) {
        self.0.send_modify(|notice| notice.closes = true);
    }

    /// Orders the session to obey the faults of its lease from its next message on. The session drops `waiting` when it
    /// obeys or ends. `bandwidth` is the rate limit in bytes per second for each direction, if there is one.
    pub(crate) fn order(
        &self,
        faults: &Arc<LeaseFaults>,
        waiting: Option<mpsc::Sender<()>>,
        bandwidth: Option<u64>,
    ) {
        self.0.send_modify(|notice| {
            let order = notice.order.get_or_insert_with(|| FaultOrder::new(Arc::clone(faults), bandwidth));
            order.add_waiting(waiting);
        });
    }
}

impl Notices {
    /// Waits until the session must close.
    pub(crate) async fn closed(&mut self) {
        self.wait(|notice| notice.closes).await;
    }

    /// Waits until the session must close or has an order.
    pub(crate) async fn changed(&mut self) {
        let took_order = self.took_order;
        self.wait(|notice| notice.closes || (!took_order && notice.order.is_some())).await;
    }

    async fn wait(&mut self, until: impl FnMut(&Notice) -> bool) {
        if self.receiver.wait_for(until).await.is_err() {
            pending::<()>().await;
        }
    }

    /// Returns true if the session has an order that it hasn't taken.
    pub(crate) fn has_order(&self) -> bool {
        !self.took_order && self.receiver.borrow().order.is_some()
    }

    /// Returns true if the session must close.
    pub(crate) fn is_closed(&self) -> bool {
        self.receiver.borrow().closes
    }

    /// Returns the session's order on the first call, and `None` afterwards.
    pub(crate) fn take_order(&mut self) -> Option<FaultOrder> {
        let order = self.receiver.borrow().order.clone().filter(|_| !self.took_order);
        self.took_order |= order.is_some();
        order
    }
}
