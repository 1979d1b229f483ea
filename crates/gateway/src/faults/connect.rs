//! Faults in place of a new connection.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::errors::fatal;
use super::fault::FaultEffect;
use super::lease_faults::LeaseFaults;
use super::scope::FaultScope;
use crate::state::ConnectionHandle;
use crate::stream::Stream;

/// How often a silent connection checks whether its lease is over.
const SILENCE_INTERVAL: Duration = Duration::from_millis(200);

/// A connection that gets a fault in place of a session.
pub(crate) struct HitConnection {
    pub(crate) client: Stream,
    pub(crate) effect: FaultEffect,
    pub(crate) faults: Arc<LeaseFaults>,
    pub(crate) scope: FaultScope,
}

impl HitConnection {
    /// Ends the connection with the effect of its fault.
    pub(crate) async fn end(self, presence: &ConnectionHandle) {
        let Self { client, effect, faults, scope } = self;
        match effect {
            FaultEffect::Error { sqlstate, .. } => {
                client.send_and_close(&fatal(&sqlstate, scope.leases.major())).await;
            }
            FaultEffect::Silence => {
                tokio::select! {
                    () = stay_silent(&client, &faults, &scope) => {}
                    () = presence.closed() => {}
                }
            }
            _ => reset(client),
        }
    }
}

/// Keeps a connection open without reading or writing, until the client closes it or the lease is over.
pub(super) async fn stay_silent(client: &Stream, faults: &Arc<LeaseFaults>, scope: &FaultScope) {
    let Ok(watcher) = client.disconnect_watcher() else { return };
    let lease_ends = async {
        while scope.has(faults) {
            sleep(SILENCE_INTERVAL).await;
        }
    };
    tokio::select! {
        () = watcher.writing_side_closed() => {}
        () = lease_ends => {}
    }
}

/// Resets a connection.
pub(super) fn reset(client: Stream) {
    if let Err(error) = client.into_parts().0.reset() {
        tracing::debug!(%error, "could not reset a connection");
    }
}
