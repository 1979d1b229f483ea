//! Keeps a lease in use while a client does not know that its session has ended.

use tokio::sync::watch;

/// The drive's end. While it exists after `start`, the client takes its ended session for open.
#[derive(Debug)]
pub(super) struct HoldSender(watch::Sender<bool>);

/// The session's end.
#[derive(Debug)]
pub(crate) struct Hold(watch::Receiver<bool>);

/// Creates both ends.
pub(super) fn hold() -> (HoldSender, Hold) {
    let (sender, receiver) = watch::channel(false);
    (HoldSender(sender), Hold(receiver))
}

impl HoldSender {
    /// Says that the session ends and the client does not know.
    pub(super) fn start(&self) {
        self.0.send_replace(true);
    }
}

impl Hold {
    /// Returns true if the client does not know that the session ends.
    pub(crate) fn has_started(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the client knows, or is gone.
    pub(crate) async fn ended(mut self) {
        while self.0.changed().await.is_ok() {}
    }
}
