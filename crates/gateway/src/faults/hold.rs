//! Keeps a lease in use while a client doesn't yet know that its session has ended.

use tokio::sync::watch;

/// The drive's end of a hold. The client believes that its ended session is open, from `start` until this sender is
/// dropped.
#[derive(Debug)]
pub(super) struct HoldSender(watch::Sender<bool>);

/// The session's end of a hold.
#[derive(Debug)]
pub(crate) struct Hold(watch::Receiver<bool>);

/// Creates both ends.
pub(super) fn hold() -> (HoldSender, Hold) {
    let (sender, receiver) = watch::channel(false);
    (HoldSender(sender), Hold(receiver))
}

impl HoldSender {
    /// Records that the session ends without the client's knowledge.
    pub(super) fn start(&self) {
        self.0.send_replace(true);
    }
}

impl Hold {
    /// Returns true if the session ends without the client's knowledge.
    pub(crate) fn has_started(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the client learns of the end, or disconnects.
    pub(crate) async fn ended(mut self) {
        while self.0.changed().await.is_ok() {}
    }
}
