//! Runs a client session in rollback isolation, once the client has received its startup response.

use std::sync::Arc;

use lease::{LeaseTransaction, TransactionGuard};
use tokio::task::spawn_blocking;

use super::drive::{Drive, End};
use super::gate::Gate;
use super::session::RollbackSession;
use crate::cancel::CancelKey;
use crate::closing::{Closing, closed, is_closed, unless};
use crate::refusal;
use crate::state::Presence;
use crate::stream::{Socket, Stream};
use crate::tap::Tap;

/// Resources of a session, other than its two connections.
pub(crate) struct RollbackConnection {
    pub(crate) lease: TransactionGuard,
    pub(crate) key: Option<CancelKey>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) session: RollbackSession,
    pub(crate) tap: Option<Box<Tap>>,
    /// Signals that this session must close.
    pub(crate) closing: Closing,
}

impl RollbackConnection {
    /// Serves the session until the client or the server closes its connection, or the gateway closes. The client
    /// receives `unsent` first.
    pub(crate) async fn run(self, client: Stream, server: Stream, unsent: Vec<u8>, mut presence: Presence) {
        let Self { lease, key, gate, mut session, tap, mut closing } = self;
        session.to_client = unsent;
        let mut drive = Drive::new(client, server, session, gate, tap);
        let ending = async {
            match unless(closed(&mut closing), drive.run()).await {
                Some(end) => end,
                None => drive.hurry().await,
            }
        };
        let end = unless(presence.closed(), ending).await;
        let words = match end {
            Some(End::Client) => {
                lease.leaving();
                let interrupt = async {
                    if let Some(key) = &key
                        && let Err(error) = key.interrupt().await
                    {
                        tracing::debug!(%error, "could not cancel the statement of a client that has left");
                    }
                };
                let left = drive.wind_down(interrupt).await;
                drop(key);
                if let Some(transaction) = left {
                    give_back(lease, drive.server, transaction).await;
                }
                return;
            }
            // pgfresh has asked the server to end the session, and the server's own message may be lost.
            Some(End::Server) if is_closed(&closing) => refusal::closed(),
            Some(End::Server) => refusal::server_gone(),
            Some(End::Closed) => refusal::closed(),
            Some(End::Broken(why)) => why,
            None => refusal::shutting_down(),
        };
        drop(lease);
        let (client, unsaid) = drive.farewell();
        if let Some(mut unsaid) = unsaid {
            unsaid.extend(words.to_bytes());
            client.say_and_close(&unsaid).await;
        }
    }
}

/// Returns the server session and its transaction to the lease, so that the lease's next client session can use them.
async fn give_back(lease: TransactionGuard, server: Stream, transaction: LeaseTransaction) {
    let (Socket::Unix(stream), unread) = server.into_parts() else { return };
    if !unread.is_empty() || stream.set_nonblocking(false).is_err() {
        return;
    }
    // If the task panics, the lease ends, as it does whenever a session ends without returning its transaction.
    if let Err(error) = spawn_blocking(move || lease.leave(stream, transaction)).await {
        tracing::error!(%error, "could not give a lease back");
    }
}
