//! Signals that tell sessions to close, either all of them because the gateway shuts down, or a single one.

use std::future::pending;

use tokio::sync::watch;

/// Signal that becomes true when the gateway or one session must close.
pub(crate) type Closing = watch::Receiver<bool>;

/// Waits until the signal is true.
pub(crate) async fn closed(closing: &mut Closing) {
    if closing.wait_for(|closing| *closing).await.is_err() {
        pending::<()>().await;
    }
}

/// Returns true if the signal is true.
pub(crate) fn is_closed(closing: &Closing) -> bool {
    *closing.borrow()
}

/// Returns the output of `work`, or `None` if `end` completes first.
pub(crate) async fn run_unless<T>(end: impl Future<Output = ()>, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        output = work => Some(output),
        () = end => None,
    }
}
