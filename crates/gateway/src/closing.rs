//! The end of the gateway, or of one session, as those hear of it that it is the end of.

use std::future::pending;

use tokio::sync::watch;

/// True once the gateway, or one session, is to be closed.
pub(crate) type Closing = watch::Receiver<bool>;

/// Waits until that is so.
pub(crate) async fn closed(closing: &mut Closing) {
    if closing.wait_for(|closing| *closing).await.is_err() {
        pending::<()>().await;
    }
}

/// Whether that is so.
pub(crate) fn is_closed(closing: &Closing) -> bool {
    *closing.borrow()
}

/// What `work` comes to; `None` if `end` comes first.
pub(crate) async fn unless<T>(end: impl Future<Output = ()>, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        output = work => Some(output),
        () = end => None,
    }
}
