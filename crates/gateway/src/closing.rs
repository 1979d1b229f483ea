//! Signals all sessions to close when the gateway shuts down.

use std::future::pending;

use tokio::sync::watch;

/// Signal that becomes true when the gateway must close.
pub(crate) type Closing = watch::Receiver<bool>;

/// Waits until the signal is true.
pub(crate) async fn closed(closing: &mut Closing) {
    if closing.wait_for(|closing| *closing).await.is_err() {
        pending::<()>().await;
    }
}

/// Returns the output of `work`, or `None` if `end` completes first.
pub(crate) async fn run_unless<T>(end: impl Future<Output = ()>, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        output = work => Some(output),
        () = end => None,
    }
}

/// Waits until `one` or `other` completes.
pub(crate) async fn either(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    tokio::select! {
        () = one => {}
        () = other => {}
    }
}
