//! Runs blocking calls on separate threads, because the threads serving requests must not block.

use lease::{LeaseError, Leases};
use tokio::task::spawn_blocking;

use crate::problem::Problem;

/// Runs a blocking call on a separate thread, so that waiting for the server doesn't delay other requests. The call
/// completes even if its request is dropped.
pub(crate) async fn blocking<T: Send + 'static>(
    leases: &Leases,
    call: impl FnOnce(&Leases) -> Result<T, LeaseError> + Send + 'static,
) -> Result<T, Problem> {
    let leases = leases.clone();
    // The task can only fail if it panics.
    Ok(spawn_blocking(move || call(&leases)).await.map_err(|_| Problem::defect())??)
}

/// Ends a lease whose client has disconnected. Errors are logged, because there is no client to receive them.
pub(crate) fn release_abandoned(leases: &Leases, name: &str) {
    match leases.release(name) {
        Ok(()) | Err(LeaseError::NotLeased(_) | LeaseError::Closed) => {}
        Err(error) => tracing::warn!(%error, name, "could not release a lease whose client has gone"),
    }
}
