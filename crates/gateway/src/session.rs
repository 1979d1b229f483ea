//! Serves one client connection: gets a backend for it, forwards its bytes, and finally returns the backend to the
//! pool.

use std::future::poll_fn;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lease::{
    Backend, ClientLink, ConnectRequest, Connected, Entered, Isolation, LeaseError, Leases, MaintenanceGuard,
    Seat, ServerRole, SessionGuard, TransactionGuard,
};
use pgwire::{Conversation, DISCARD_ALL, Startup, frames, with_parameter, without_negotiation};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::{Instrument, Span};

use crate::cancel::CancelKey;
use crate::closing::{either, run_unless};
use crate::error_message;
use crate::faults::{ClientSide, FaultOrder, FaultScope, Hold, SessionFacts, switch};
use crate::forward::{End, EndWaitingBackends, Forward, Observed};
use crate::handshake::{ClientRequest, HandshakeError, PendingSession, read_request};
use crate::notices::Notices;
use crate::rollback::{Gate, RollbackConnection, RollbackSession};
use crate::state::{ConnectionHandle, GatewayState};
use crate::statement_tap::SessionListeners;
use crate::stream::{Socket, Stream};
use crate::workers::Workers;

/// Timeout for a backend to discard its session state.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);
/// Databases that clients usually connect to when dropping other databases with SQL.
const MAINTENANCE: [&str; 2] = ["postgres", "template1"];

/// Settings that are on in a replica's sessions, so that clients recognize a replica. Servers before 14 don't report
/// them.
const STANDBY_SETTINGS: [&str; 2] = ["in_hot_standby", "default_transaction_read_only"];

/// Serves one connection until the connection or the gateway closes.
pub(crate) async fn serve(
    socket: Socket,
    role: ServerRole,
    state: Arc<GatewayState>,
    presence: ConnectionHandle,
) {
    let Ok(stream) = Stream::new(socket, Vec::new()) else { return };
    let of_session = presence.clone();
    let serve = async {
        match read_request(stream, &state).await {
            Ok(ClientRequest::Http(stream)) => {
                if let Some(http) = &state.http {
                    Arc::clone(http).serve(stream).await;
                }
            }
            // The protocol doesn't define a response to a cancel request. Closing the connection tells the client that
            // the gateway has processed the request.
            Ok(ClientRequest::Cancel(_stream, key)) => drop(state.keys.cancel(&key).await),
            Ok(ClientRequest::Session(stream, pending)) => {
                let state = Arc::clone(&state);
                let (socket, unread) = stream.into_parts();
                // An error means that the task panicked. The panic also closed the client's connection.
                let handed = spawn_blocking(move || {
                    let database = &pending.startup.database;
                    let _span = tracing::debug_span!("session", %database).entered();
                    start(&state, role, socket, unread, pending, of_session);
                });
                if let Err(error) = handed.await {
                    tracing::error!(%error, "could not hand a session over");
                }
            }
            Err(HandshakeError::Refused(stream, message)) => stream.send_and_close(&message).await,
            Err(HandshakeError::Hit(connection)) => connection.end(&presence).await,
            Err(HandshakeError::Disconnected) => {}
        }
    };
    tokio::select! {
        () = serve => {}
        () = presence.closed() => {}
    }
}

/// Gets a backend (blocking until there is one) and hands the session to a worker thread.
fn start(
    state: &Arc<GatewayState>,
    role: ServerRole,
    socket: Socket,
    unread: Vec<u8>,
    pending: PendingSession,
    presence: ConnectionHandle,
) {
    let PendingSession { startup, settings, version_negotiated, since, bandwidth } = pending;
    let Startup { params, database, replication } = startup;
    let (link, notices) = socket.link();
    let maintenance = MAINTENANCE.contains(&database.as_str()).then(|| state.leases.maintenance_session());
    let client = link.clone().map(|link| -> Arc<dyn ClientLink> { link });
    let request = ConnectRequest { client, ..settings.request(&database, &params) };
    let entered = match lease_session(state, &request, replication, role) {
        Ok(entered) => entered,
        Err(error) => return refuse(state, socket, unread, error, presence),
    };
    let mut listeners = state.taps.listeners(&database, &settings, &params, &state.leases);
    if role == ServerRole::Replica {
        listeners.replica = state.leases.replica_watch(&database);
    }
    let faults = state.faults.for_session(&database, settings.reset, &state.leases);
    if let (Some(faults), Some(link)) = (faults, &link) {
        link.notices.order(&faults, None, bandwidth);
    }
    // A client might be about to drop databases with SQL, which would fail if backends were waiting in them.
    if state.leases.has_maintenance_sessions() {
        state.leases.vacate();
    }
    let stands_in = role == ServerRole::Replica && !has_replica(state, &database);
    let changes = StartupResponseChanges { version_negotiated, stands_in };
    let begin = SessionStart {
        socket,
        unread,
        presence,
        database,
        replication,
        since,
        changes,
        listeners,
        maintenance,
        notices,
    };
    match entered {
        Entered::Plain(connected) => begin.with(connected, state),
        Entered::Transaction(lease) => begin.in_transaction(lease, state),
    }
}

/// How the client's startup response differs from the server's.
struct StartupResponseChanges {
    /// Whether the gateway has negotiated the protocol version, so that the server's own message must not follow.
    version_negotiated: bool,
    /// Whether the database stands in for a replica, so that the response must look like one from a replica.
    stands_in: bool,
}

impl StartupResponseChanges {
    fn apply(&self, startup_response: Vec<u8>) -> Vec<u8> {
        let startup_response =
            if self.version_negotiated { without_negotiation(startup_response) } else { startup_response };
        let reports = if self.stands_in { &STANDBY_SETTINGS[..] } else { &[] };
        reports
            .iter()
            .fold(startup_response, |startup_response, name| with_parameter(&startup_response, name, "on"))
    }
}

/// The client of a session that is about to start.
struct SessionStart {
    socket: Socket,
    unread: Vec<u8>,
    presence: ConnectionHandle,
    database: String,
    replication: bool,
    /// When the client's startup message arrived.
    since: Instant,
    changes: StartupResponseChanges,
    listeners: SessionListeners,
    maintenance: Option<MaintenanceGuard>,
    notices: Notices,
}

impl SessionStart {
    /// Hands the session to a worker thread.
    fn with(self, connected: Connected, state: &GatewayState) {
        let Self { socket, unread, presence, replication, since, maintenance, notices, .. } = self;
        let Connected { backend: Backend { stream, startup_response, seat }, guard } = connected;
        let observed = Observed::new(replication, &startup_response);
        let mut response = self.changes.apply(startup_response.clone());
        let facts = facts(state, self.database, startup_response);
        let Ok(key) = state.keys.issue(&mut response, &stream, None) else { return };
        let tap = state.taps.tap(&facts.scope.name, key.as_ref(), since, self.listeners);
        let tap = tap.filter(|_| !replication);
        let vacate = end_waiting_backends(state.leases.clone());
        let session = Session { facts, seat, key, guard, maintenance, notices, order: None, hold: None };
        run_session(&state.workers, socket, unread, stream, response, |client, server, rest| async move {
            session.run(Forward::new(client, server, observed, vacate, tap, rest), presence).await;
        });
    }

    /// Hands the session of a lease in rollback isolation to a worker thread.
    fn in_transaction(self, mut lease: TransactionGuard, state: &GatewayState) {
        let Self { socket, unread, presence, since, notices, .. } = self;
        let Some((stream, startup_response, transaction)) = lease.lend() else {
            // The server has terminated its session, so the lease has ended too.
            let message = error_message::server_gone().to_bytes();
            return send_last_message(state, socket, unread, message, presence);
        };
        let mut response = self.changes.apply(startup_response.clone());
        let facts = facts(state, self.database, startup_response);
        let gate = Arc::new(Gate::new());
        let session = RollbackSession::new(transaction, &response);
        let Ok(key) = state.keys.issue(&mut response, &stream, Some(Arc::clone(&gate))) else { return };
        let tap = state.taps.tap(&facts.scope.name, key.as_ref(), since, self.listeners);
        let session = RollbackConnection { lease, key, gate, session, tap, facts, notices };
        run_session(&state.workers, socket, unread, stream, response, |client, server, rest| {
            session.run(client, server, rest, presence)
        });
    }
}

/// Returns the facts about a session in the database `name`.
fn facts(state: &GatewayState, name: String, startup_response: Vec<u8>) -> SessionFacts {
    let scope = FaultScope { registry: Arc::clone(&state.faults), leases: state.leases.clone(), name };
    SessionFacts { scope, startup_response }
}

/// Returns true if the lease has its own server with a replica. Otherwise, a copy stands in for the replica.
fn has_replica(state: &GatewayState, database: &str) -> bool {
    state.leases.isolation(database) == Some(Isolation::Server) && !Leases::is_always_there(database)
}

/// Returns a function that ends all backends that are waiting for clients. Until this function is dropped, no backend
/// starts in databases without a lease, because the client might run its statement again.
fn end_waiting_backends(leases: Leases) -> EndWaitingBackends {
    let mut hold = None;
    Box::new(move || {
        leases.vacate();
        hold.get_or_insert_with(|| leases.hold_spares());
    })
}

/// Tells a client why it doesn't get a session.
fn refuse(
    state: &GatewayState,
    socket: Socket,
    unread: Vec<u8>,
    error: LeaseError,
    presence: ConnectionHandle,
) {
    tracing::debug!(%error, "refused");
    send_last_message(state, socket, unread, error_message::to_message(error), presence);
}

/// Sends a client its last message, even while the gateway is closing.
fn send_last_message(
    state: &GatewayState,
    socket: Socket,
    unread: Vec<u8>,
    message: Vec<u8>,
    presence: ConnectionHandle,
) {
    state.workers.spawn(move || async move {
        let _presence = presence;
        if let Ok(stream) = Stream::new(socket, unread) {
            stream.send_and_close(&message).await;
        }
    });
}

/// Gets a session. The isolation comes from the request; otherwise from the existing lease; otherwise from the server's
/// default.
fn lease_session(
    state: &GatewayState,
    request: &ConnectRequest<'_>,
    replication: bool,
    role: ServerRole,
) -> Result<Entered, LeaseError> {
    let leases = &state.leases;
    if role == ServerRole::Replica {
        return leases.connect_replica(request);
    }
    let isolation = request.isolation.or_else(|| leases.isolation(request.database));
    let rolls_back = isolation.unwrap_or_else(|| leases.default_isolation()) == Isolation::Rollback;
    if replication && rolls_back && !Leases::is_always_there(request.database) {
        return Err(LeaseError::Replication);
    }
    if replication {
        leases.begin_replication();
    }
    leases.connect(request)
}

/// Sends the client the server's startup response and hands the session to a worker thread.
fn run_session<F: Future<Output = ()> + Send + 'static>(
    workers: &Workers,
    client: Socket,
    unread: Vec<u8>,
    server: UnixStream,
    mut startup_response: Vec<u8>,
    run: impl FnOnce(Stream, Stream, Vec<u8>) -> F + Send + 'static,
) {
    let Ok(server) = Socket::unix(server) else { return };
    // Send the response from this thread, so that the client can prepare its first query while the worker takes over.
    let sent = client.send(&startup_response).unwrap_or(0);
    startup_response.drain(..sent);
    let span = Span::current();
    workers.spawn(move || {
        let session = async move {
            if let (Ok(client), Ok(server)) = (Stream::new(client, unread), Stream::new(server, Vec::new())) {
                tracing::debug!("begins");
                run(client, server, startup_response).await;
                tracing::debug!("has ended");
            }
        };
        session.instrument(span)
    });
}

/// When a session starts to obey faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Before the client's first message.
    Begins,
    Runs,
    /// Before a message that requests a fault.
    RequestsFault,
}

/// Everything a session needs besides its two connections.
struct Session {
    facts: SessionFacts,
    seat: Seat,
    key: Option<CancelKey>,
    guard: SessionGuard,
    maintenance: Option<MaintenanceGuard>,
    notices: Notices,
    /// The session's order to obey faults. `None` if the session has no faults, or once the server has terminated it.
    order: Option<FaultOrder>,
    /// Keeps the lease in use after the session has ended. `None` if the session has no faults.
    hold: Option<Hold>,
}

impl Session {
    /// Forwards until the client or the server disconnects or the gateway closes.
    async fn run(mut self, mut forward: Forward, presence: ConnectionHandle) {
        let end = run_unless(presence.closed(), self.forward_until_end(&mut forward, &presence)).await;
        match end {
            Some(End::Idle) => return self.return_backend(forward.server).await,
            Some(End::Client) => {
                drop(forward);
                return self.outlive_session(&presence).await;
            }
            Some(End::Server | End::Closed | End::FaultRequest) | None => {}
        }
        let close_requested = self.notices.is_closed();
        let unsent = forward.take_unsent();
        let Forward { client, server, conversation, .. } = forward;
        drop((server, self));
        if let Some(message) = final_message(&conversation, end, close_requested) {
            client.send_and_close(&[unsent, message].concat()).await;
        }
    }

    /// Forwards until the client or the server closes its connection. If the session must close, stops as soon as the
    /// client stops reading.
    async fn forward_until_end(&mut self, forward: &mut Forward, presence: &ConnectionHandle) -> End {
        if self.notices.has_order() {
            self.obey_faults(forward, presence, Stage::Begins).await;
        }
        loop {
            let stage = match self.forward_until_notice(forward).await {
                Some(End::FaultRequest) => Stage::RequestsFault,
                Some(end) => return end,
                None if self.notices.is_closed() => return forward.run_while_client_reads().await,
                None if self.order.as_ref().is_some_and(FaultOrder::is_terminated) => {
                    if self.terminate().await {
                        continue;
                    }
                    return End::Closed;
                }
                None => Stage::Runs,
            };
            self.obey_faults(forward, presence, stage).await;
        }
    }

    /// Forwards until the session ends. Returns early if the session must close or obey faults.
    async fn forward_until_notice(&mut self, forward: &mut Forward) -> Option<End> {
        let Self { guard, notices, order, hold, .. } = self;
        let ending = async {
            let end = forward.run().await;
            let is_held = hold.as_ref().is_some_and(Hold::has_started);
            if end != End::Server && end != End::FaultRequest && !is_held {
                // Announce that the session is about to end, so that a task that needs the lease waits for this,
                // however busy the machine is.
                guard.leaving();
            }
            if end == End::Client {
                forward.drain().await;
            }
            end
        };
        match order {
            None => run_unless(notices.changed(), ending).await,
            Some(order) => run_unless(either(notices.changed(), order.terminates()), ending).await,
        }
    }

    /// Makes the server end the session because of a fault, so that the server sends the client the reason. Returns
    /// false if this fails.
    async fn terminate(&mut self) -> bool {
        let Some(order) = self.order.take() else { return false };
        let (scope, process) = (self.facts.scope.clone(), self.facts.process());
        let terminated = spawn_blocking(move || scope.leases.terminate(&scope.name, process)).await;
        order.done();
        match terminated {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::debug!(%error, "could not terminate a session because of a fault");
                false
            }
            Err(_) => false,
        }
    }

    /// Stays in the lease while the client doesn't know that its session has ended.
    async fn outlive_session(mut self, presence: &ConnectionHandle) {
        if let Some(hold) = self.hold.take().filter(Hold::has_started) {
            tokio::select! {
                () = hold.ended() => {}
                () = self.notices.closed() => {}
                () = presence.closed() => {}
            }
        }
    }

    /// Puts the faults of the lease between the client and this session, unless the session ends first.
    async fn obey_faults(&mut self, forward: &mut Forward, presence: &ConnectionHandle, stage: Stage) {
        let Self { facts, notices, .. } = self;
        let order = self.order.insert(facts.take_order(notices));
        let rests = !forward.is_draining() && forward.conversation.status() != 0 && {
            let ends = either(notices.closed(), order.terminates());
            run_unless(ends, forward.run_until_rest(stage == Stage::RequestsFault)).await == Some(true)
        };
        if !rests {
            forward.ignore_fault_requests();
            if !order.is_terminated() {
                order.done();
            }
            return;
        }
        self.hold = switch(order, facts, (notices, presence), |other| {
            let status = forward.conversation.status();
            let has_run_in_block = forward.conversation.has_run_in_block();
            let (client, unsent, tap) = forward.exchange_client(other);
            let is_new = stage == Stage::Begins;
            ClientSide {
                client,
                unsent,
                tap,
                tapped: 0,
                status,
                has_run_in_block,
                is_new,
                replaced: Vec::new(),
            }
        });
        if self.hold.is_none() {
            forward.ignore_fault_requests();
        }
    }

    /// Makes the backend discard the session's state and returns the backend to the pool for the next client.
    async fn return_backend(self, mut server: Stream) {
        let Self { facts, seat, key, guard, maintenance: _maintenance, .. } = self;
        let SessionFacts { scope: FaultScope { leases, .. }, startup_response } = facts;
        // Don't reuse the backend if a cancel signal might still be in transit, or if a client might be about to drop
        // the database.
        let wanted = || !leases.has_maintenance_sessions();
        if key.is_some_and(CancelKey::withdraw) || !wanted() {
            return;
        }
        let forgotten =
            matches!(timeout(DISCARD_TIMEOUT, discard_session_state(&mut server)).await, Ok(Ok(true)));
        if let (Socket::Unix(stream), unread) = server.into_parts()
            && forgotten
            && wanted()
            && unread.is_empty()
            && stream.set_nonblocking(false).is_ok()
        {
            guard.give_back(Backend { stream, startup_response, seat });
        }
    }
}

/// Returns the last message for a client that didn't end the session itself.
///
/// `end` is `None` if the gateway closes. `close_requested` means that pgfresh asked the server to terminate the
/// session, so the server's own message might be lost. In the middle of a server message, the result is `None`, because
/// the gateway can't insert its own message there.
fn final_message(conversation: &Conversation, end: Option<End>, close_requested: bool) -> Option<Vec<u8>> {
    if !conversation.may_interject() {
        return None;
    }
    // The client doesn't need a message if the server has already sent the reason, or if the server rejected an invalid
    // message length. PostgreSQL doesn't send an error then.
    if conversation.ends_in_error() || (end == Some(End::Server) && conversation.is_within_message()) {
        return Some(Vec::new());
    }
    let message = match end {
        None => error_message::shutting_down(),
        Some(End::Closed) => error_message::closed(),
        Some(_) if close_requested => error_message::closed(),
        Some(_) => error_message::server_gone(),
    };
    Some(message.to_bytes())
}

/// Makes the backend discard all session state. Returns true if this succeeded and the backend is idle.
async fn discard_session_state(server: &mut Stream) -> io::Result<bool> {
    let mut conversation = Conversation::new(false);
    conversation.observe_client(DISCARD_ALL, |_| ());
    server.write_all(DISCARD_ALL).await?;
    let (mut chunk, mut answer) = ([0; 1024], Vec::new());
    while !conversation.is_idle() {
        let count = server.read(&mut chunk).await?;
        conversation.observe_server(&chunk[..count]);
        answer.extend_from_slice(&chunk[..count]);
        if count == 0 || conversation.has_failed() {
            return Ok(false);
        }
    }
    // An error (caused, for example, by a timeout the client has set) can arrive along with its ReadyForQuery.
    if frames(&answer).any(|frame| frame.tag == b'E') {
        return Ok(false);
    }
    // Make sure that the backend doesn't send further bytes, because the next client would receive them.
    let more = poll_fn(|context| match server.poll_receive(context, &mut chunk) {
        std::task::Poll::Pending => std::task::Poll::Ready(ControlFlow::Continue(())),
        std::task::Poll::Ready(_) => std::task::Poll::Ready(ControlFlow::Break(())),
    });
    Ok(more.await.is_continue())
}

#[cfg(test)]
mod tests;
