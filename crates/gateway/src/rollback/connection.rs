//! Runs a client's session in rollback isolation, from the startup response on.

use std::sync::Arc;
use std::time::Duration;

use lease::{LeaseTransaction, TransactionGuard};
use tokio::task::spawn_blocking;

use super::drive::{Drive, End};
use super::gate::Gate;
use super::session::RollbackSession;
use crate::cancel::CancelKey;
use crate::closing::{either, run_unless};
use crate::error_message;
use crate::faults::{FaultOrder, SessionFacts, fatal, switch};
use crate::notices::Notices;
use crate::state::ConnectionHandle;
use crate::statement_tap::Tap;
use crate::stream::{Socket, Stream};

/// How long a statement can continue after its client has disconnected. The lease's next client waits for the
/// statement, for at most a second.
const PATIENCE: Duration = Duration::from_millis(500);

/// Everything a session needs besides its two connections.
pub(crate) struct RollbackConnection {
    pub(crate) lease: TransactionGuard,
    pub(crate) key: Option<CancelKey>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) session: RollbackSession,
    pub(crate) tap: Option<Box<Tap>>,
    pub(crate) facts: SessionFacts,
    pub(crate) notices: Notices,
}

impl RollbackConnection {
    /// Serves the session until the client or the server disconnects or the gateway closes. The client receives
    /// `unsent` first.
    pub(crate) async fn run(
        self,
        client: Stream,
        server: Stream,
        unsent: Vec<u8>,
        presence: ConnectionHandle,
    ) {
        let Self { lease, key, gate, mut session, tap, facts, mut notices } = self;
        session.to_client = unsent;
        let mut drive = Drive::new(client, server, session, gate, tap);
        let mut order = None;
        let ending = drive_until_end(&mut drive, &mut order, &facts, &mut notices, &presence);
        let end = run_unless(presence.closed(), ending).await;
        let message = match end {
            Some(End::Client) => return drop(wind_down(drive, lease, key).await),
            Some(End::Terminated) => {
                drive.terminate(fatal("57P01", facts.scope.leases.major()), interrupt(key.as_ref())).await;
                let client = wind_down(drive, lease, key).await;
                order.iter().for_each(FaultOrder::done);
                return client.send_and_close(&[]).await;
            }
            Some(End::Server) if drive.has_fatal_error() => None,
            // pgfresh asked the server to end the session, and the server's own message may have been lost.
            Some(End::Server) if notices.is_closed() => Some(error_message::closed()),
            Some(End::Server) => Some(error_message::server_gone()),
            Some(End::Closed | End::AtRest) => Some(error_message::closed()),
            Some(End::Broken(why)) => Some(why),
            None => Some(error_message::shutting_down()),
        };
        drop(lease);
        let (client, unsent) = drive.into_client();
        if let Some(mut unsent) = unsent {
            unsent.extend(message.map(|message| message.to_bytes()).unwrap_or_default());
            client.send_and_close(&unsent).await;
        }
    }
}

/// Drives until the session ends. If the session must close, stops as soon as the client stops reading. If the session
/// has an order to obey faults, stores it in `order`.
async fn drive_until_end(
    drive: &mut Drive,
    order: &mut Option<FaultOrder>,
    facts: &SessionFacts,
    notices: &mut Notices,
    presence: &ConnectionHandle,
) -> End {
    let mut is_new = notices.has_order();
    loop {
        if !is_new {
            let ended = match order {
                None => run_unless(notices.changed(), drive.run()).await,
                Some(order) => run_unless(either(notices.changed(), order.terminates()), drive.run()).await,
            };
            match ended {
                Some(End::AtRest) => {}
                Some(end) => return end,
                None if notices.is_closed() => return drive.run_while_client_reads().await,
                None if order.as_ref().is_some_and(FaultOrder::is_terminated) => return End::Terminated,
                None => {}
            }
        }
        let order = order.insert(facts.take_order(notices));
        let rests = {
            let ends = either(notices.closed(), order.terminates());
            run_unless(ends, drive.run_until_rest()).await == Some(true)
        };
        let exchange = |other| drive.exchange_client(other, is_new);
        // Without a hold, the lease's next client gets the transaction once the server has finished this client's work.
        if !rests || switch(order, facts, (notices, presence), exchange).is_none() {
            drive.ignore_fault_requests();
            if !order.is_terminated() {
                order.done();
            }
        }
        is_new = false;
    }
}

/// Lets the server finish the work of a client that doesn't receive further responses, and returns the transaction to
/// the lease. Returns the client's connection.
async fn wind_down(mut drive: Drive, lease: TransactionGuard, key: Option<CancelKey>) -> Stream {
    lease.leaving();
    let left = drive.wind_down(PATIENCE, interrupt(key.as_ref())).await;
    drop(key);
    let Drive { client, server, .. } = drive;
    if let Some(transaction) = left {
        return_to_lease(lease, server, transaction).await;
    }
    client
}

/// Cancels the statement of a client that doesn't receive further responses.
async fn interrupt(key: Option<&CancelKey>) {
    if let Some(key) = key
        && let Err(error) = key.interrupt().await
    {
        tracing::debug!(%error, "could not cancel the statement of a client");
    }
}

/// Returns the server's session and its transaction to the lease, for its next client.
async fn return_to_lease(lease: TransactionGuard, server: Stream, transaction: LeaseTransaction) {
    let (Socket::Unix(stream), unread) = server.into_parts() else { return };
    if !unread.is_empty() || stream.set_nonblocking(false).is_err() {
        return;
    }
    // If this task panics, the lease ends, as it does whenever a session fails to return its transaction.
    if let Err(error) = spawn_blocking(move || lease.leave(stream, transaction)).await {
        tracing::error!(%error, "could not give a lease back");
    }
}
