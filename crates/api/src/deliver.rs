//! Completes the work of requests whose clients may disconnect at any time.
//!
//! When a client disconnects, hyper drops the future of its request. Work that changes several things must still run to
//! its end, and a lease made for the client must end, because the client will never release it.

use std::future::Future;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use tokio::sync::oneshot;

use crate::problem::Problem;

/// Runs a request's handler to its end, even if the client disconnects early.
pub(crate) async fn detach(request: Request, next: Next) -> Result<Response, Problem> {
    tokio::spawn(next.run(request)).await.map_err(|_| Problem::defect())
}

/// Runs `work` to its end, even if the request is dropped, and returns the result. If the request is dropped before it
/// receives the result, passes the result to `undo` instead.
///
/// A request might also be dropped while the result waits in the channel, after the task has sent it. Therefore, the
/// request acknowledges the result, and the task waits for this receipt.
pub(crate) async fn deliver<T, W, U>(
    work: W,
    undo: impl FnOnce(T) -> U + Send + 'static,
) -> Result<T, Problem>
where
    T: Clone + Send + 'static,
    W: Future<Output = Result<T, Problem>> + Send + 'static,
    U: Future<Output = ()> + Send,
{
    let (sender, receiver) = oneshot::channel();
    tokio::spawn(async move {
        let result = work.await;
        let made = result.as_ref().ok().cloned();
        let (receipt, confirmation) = oneshot::channel();
        // Wherever the result is dropped, its receipt is dropped with it.
        drop(sender.send((result, receipt)));
        if confirmation.await.is_err()
            && let Some(made) = made
        {
            undo(made).await;
        }
    });
    // The task can only fail if it panics.
    let (result, receipt) = receiver.await.map_err(|_| Problem::defect())?;
    // The task waits for the receipt, so sending can't fail.
    let _sent = receipt.send(());
    result
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use tokio::sync::mpsc;
    use tokio::task::yield_now;

    use super::*;

    /// The requests and tasks of a test share one thread, so each step has happened when the next one begins.
    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(test);
    }

    #[test]
    fn received_results_are_kept() {
        run(async {
            let (undo, mut undone) = mpsc::unbounded_channel();
            let result = deliver(async { Ok(1) }, move |made| async move { undo.send(made).unwrap() });
            assert_eq!(result.await.ok(), Some(1));
            assert_eq!(undone.recv().await, None);
        });
    }

    #[test]
    fn results_after_a_drop_are_undone() {
        run(async {
            let (undo, mut undone) = mpsc::unbounded_channel();
            let (finish, finished) = oneshot::channel::<i32>();
            let work = async { finished.await.map_err(|_| Problem::defect()) };
            {
                let request = deliver(work, move |made| async move { undo.send(made).unwrap() });
                assert!(pin!(request).poll(&mut Context::from_waker(Waker::noop())).is_pending());
            }
            finish.send(2).unwrap();
            assert_eq!(undone.recv().await, Some(2));
        });
    }

    #[test]
    fn results_dropped_unread_are_undone() {
        run(async {
            let (undo, mut undone) = mpsc::unbounded_channel();
            let (ended, end) = oneshot::channel::<()>();
            let work = async move {
                ended.send(()).unwrap();
                Ok(3)
            };
            {
                let request = deliver(work, move |made| async move { undo.send(made).unwrap() });
                assert!(pin!(request).poll(&mut Context::from_waker(Waker::noop())).is_pending());
                end.await.unwrap();
                yield_now().await;
            }
            assert_eq!(undone.recv().await, Some(3));
        });
    }
}
