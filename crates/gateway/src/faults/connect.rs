//! Faults in place of a new connection.

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

/// Interval at which a connection that has no session checks whether its lease is over.
const LEASE_INTERVAL: Duration = Duration::from_millis(200);

/// A connection that gets a fault in place of a session.
pub(crate) struct HitConnection {
    pub(crate) client: Stream,
    pub(crate) effect: FaultEffect,
    pub(crate) faults: Arc<LeaseFaults>,
    pub(crate) scope: FaultScope,
}

/// How the delay of a new connection has ended.
pub(crate) enum Delayed {
    /// The connection goes on.
    Over(Stream),
    /// The lease is over, and the connection must not begin another one.
    LeaseEnded(Stream),
    /// The client has closed the connection.
    ClientLeft,
}

impl HitConnection {
    /// Ends the connection with the effect of its fault.
    pub(crate) async fn end(self, presence: &ConnectionHandle) {
        let Self { client, effect, faults, scope } = self;
        match effect {
            FaultEffect::Error { sqlstate, .. } => {
                // Only an open session hears of a crash. Afterwards, the server refuses new ones.
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

    /// Waits for `time`, but no longer than until the client leaves or the lease is over.
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

/// Keeps a connection open without reading or writing, until the client closes it or the lease is over.
pub(super) async fn stay_silent(client: &Stream, faults: &Arc<LeaseFaults>, scope: &FaultScope) {
    tokio::select! {
        () = closes_writing_side(client) => {}
        () = lease_ends(faults, scope) => {}
    }
}

/// Waits until the peer closes its writing side.
pub(super) async fn closes_writing_side(peer: &Stream) {
    match peer.disconnect_watcher() {
        Ok(watcher) => watcher.writing_side_closed().await,
        // The process has no descriptor left. The caller's other conditions still end its wait.
        Err(_) => pending().await,
    }
}

/// Waits until the client no longer reads either. A client on another machine counts as disconnected once it has closed its
/// writing side.
pub(super) async fn disconnects(client: &Stream) {
    match client.disconnect_watcher() {
        Ok(watcher) => {
            watcher.writing_side_closed().await;
            watcher.disconnected().await;
        }
        Err(_) => pending().await,
    }
}

/// Waits until the lease no longer has these faults.
async fn lease_ends(faults: &Arc<LeaseFaults>, scope: &FaultScope) {
    while scope.has(faults) {
        sleep(LEASE_INTERVAL).await;
    }
}

/// Resets a connection.
pub(super) fn reset(client: Stream) {
    if let Err(error) = client.into_parts().0.reset() {
        tracing::debug!(%error, "could not reset a connection");
    }
}
