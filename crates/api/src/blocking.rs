//! Calls that block, beside the threads that serve.

use lease::{LeaseError, Leases};
use tokio::task::spawn_blocking;

use crate::problem::Problem;

/// Runs a call that waits for the server on a thread for blocking work, so that no other request waits for it. The call
/// runs to its end, even if its own request is dropped.
pub(crate) async fn blocking<T: Send + 'static>(
    leases: &Leases,
    call: impl FnOnce(&Leases) -> Result<T, LeaseError> + Send + 'static,
) -> Result<T, Problem> {
    let leases = leases.clone();
    // A panic is all that can end it otherwise.
    Ok(spawn_blocking(move || call(&leases)).await.map_err(|_| Problem::defect())??)
}

/// Ends a lease that no client has any more. No client is left to hear of an error, so it is logged.
pub(crate) fn release_abandoned(leases: &Leases, name: &str) {
    match leases.release(name) {
        Ok(()) | Err(LeaseError::NotLeased(_) | LeaseError::Closed) => {}
        Err(error) => tracing::warn!(%error, name, "could not release a lease whose client has gone"),
    }
}
