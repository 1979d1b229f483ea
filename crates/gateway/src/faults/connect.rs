//! Carries out faults that hit a new connection, before it has a session.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::errors::fatal;
use super::fault::FaultEffect;
use super::lease_faults::LeaseFaults;
use super::scope::FaultScope;
use crate::state::ConnectionHandle;
use crate::stream::Stream;

/// How often a connection without a session checks whether its lease has ended.
const LEASE_INTERVAL: Duration = Duration::from_millis(200);

/// A new connection that a fault hits before it gets a session.
pub(crate) struct HitConnection {
    pub(crate) client: Stream,
    pub(crate) effect: FaultEffect,
    pub(crate) faults: Arc<LeaseFaults>,
    pub(crate) scope: FaultScope,
}

/// How the delay of a new connection ended.
pub(crate) enum Delayed {
    /// The delay is over, and the connection can start its session.
    Over(Stream),
    /// The lease has ended. The connection must not start a session in the next lease.
    LeaseEnded(Stream),
    /// The client closed the connection.
    ClientLeft,
}

impl HitConnection {
    /// Ends the connection with the fault's effect.
    pub(crate) async fn end(self, presence: &ConnectionHandle) {
        let Self { client, effect, faults, scope } = self;
        match effect {
            FaultEffect::Error { sqlstate, .. } => {
                // Only open sessions receive the crash message (57P02). After a crash, the server refuses new sessions
                // with 57P03.
                let sqlstate = if sqlstate == "57P02" { "57P03" } else { &sqlstate };
                client.send_and_close(&fatal(sqlstate, scope.leases.major())).await;
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

    /// Waits for `time`. Returns early if the client disconnects or the lease ends.
    pub(crate) async fn delay(self, time: Duration) -> Delayed {
        let Self { client, faults, scope, .. } = self;
        tokio::select! {
            () = sleep(time) => {}
            () = closes_writing_side(&client) => return Delayed::ClientLeft,
            () = lease_ends(&faults, &scope) => {}
        }
        if scope.has(&faults) { Delayed::Over(client) } else { Delayed::LeaseEnded(client) }
    }
}

/// Keeps a connection open without reading or writing, until the client closes it or the lease ends.
pub(super) async fn stay_silent(client: &Stream, faults: &Arc<LeaseFaults>, scope: &FaultScope) {
    tokio::select! {
        () = closes_writing_side(client) => {}
        () = lease_ends(faults, scope) => {}
    }
}

/// Waits until `peer` closes its writing side.
pub(super) async fn closes_writing_side(peer: &Stream) {
    match peer.disconnect_watcher() {
        Ok(watcher) => watcher.writing_side_closed().await,
        // The process has run out of descriptors. The caller also waits for other events, so it doesn't hang.
        Err(_) => pending().await,
    }
}

/// Waits until the client neither writes nor reads. A client on another machine counts as disconnected once it has
/// closed its writing side.
pub(super) async fn disconnects(client: &Stream) {
    match client.disconnect_watcher() {
        Ok(watcher) => {
            watcher.writing_side_closed().await;
            watcher.disconnected().await;
        }
        Err(_) => pending().await,
    }
}

/// Waits until `faults` no longer belong to the current lease.
async fn lease_ends(faults: &Arc<LeaseFaults>, scope: &FaultScope) {
    while scope.has(faults) {
        sleep(LEASE_INTERVAL).await;
    }
}

/// Closes a connection with a TCP reset.
pub(super) fn reset(client: Stream) {
    if let Err(error) = client.into_parts().0.reset() {
        tracing::debug!(%error, "could not reset a connection");
    }
}
