//! Moves bytes between a client and its session. A [`FaultSession`] decides what happens to each message.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use lease::LeaseError;
use pgwire::{ErrorResponse, HEADER, MalformedFrame};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::begin::{make_read_only, read_state};
use super::connect::{closes_writing_side, disconnects, reset, stay_silent};
use super::fault::{Fault, FaultError};
use super::hold::HoldSender;
use super::lease_faults::LeaseFaults;
use super::order::FaultOrder;
use super::pace::Pace;
use super::scope::FaultScope;
use super::session::{FaultSession, Interruption, Side, SwitchedState};
use super::sql_request::{failing_message, requested_faults};
use super::switched_session::{ClientSide, SessionFacts};
use crate::buffer::BUFFER;
use crate::frame_buffer::FrameBuffer;
use crate::notices::Notices;
use crate::state::ConnectionHandle;
use crate::statement_tap::Tap;
use crate::stream::Stream;

/// Maximum number of bytes that wait for one side before the drive stops reading from the other side.
const MAX_WAITING_BYTES: usize = 256 << 10;
/// How long a closing session waits for a client that doesn't read.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// A client's Query that requests faults, valid or not.
#[derive(Debug)]
struct RequestMessage {
    message: Vec<u8>,
    faults: Result<Vec<Fault>, FaultError>,
}

/// Why the drive stops moving bytes.
#[derive(Debug)]
enum Event {
    Interrupted(Interruption),
    /// The client's Query requests faults.
    Requested(RequestMessage),
    /// The drive can now query the server for the session's state.
    ReadsState,
    /// The session closed its end.
    SessionEnded,
    /// The session must close.
    Closes,
}

/// Runs between a client and its session.
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own, and most may hold together")]
pub(super) struct FaultDrive {
    client: Stream,
    inner: Stream,
    session: FaultSession,
    scope: FaultScope,
    faults: Arc<LeaseFaults>,
    order: FaultOrder,
    /// Whether the client might have prepared statements that the `FaultSession` hasn't read yet.
    has_unread_state: bool,
    /// Whether the server has responded to all client messages.
    rests: bool,
    tap: Option<Box<Tap>>,
    /// Number of unread client bytes that the tap has already seen.
    tapped_up: usize,
    /// Number of bytes for the client that the tap has already seen.
    tapped_down: usize,
    up: FrameBuffer,
    down: FrameBuffer,
    up_pace: Pace,
    down_pace: Pace,
    interruption: Option<Interruption>,
    /// Transaction status from the last ReadyForQuery.
    status: u8,
    /// Whether the server had already responded to a request in the open transaction block when the drive started.
    has_run_in_block: bool,
    /// Error that replaces the server's next error.
    reworded: Option<Vec<u8>>,
    requested: Option<RequestMessage>,
    /// Whether the client has closed its writing side.
    client_ended: bool,
    /// Whether the drive has closed the writing side of the session's connection, because the client closed its own.
    has_closed_writing: bool,
    /// Whether the drive discards all bytes for the client, because the client has disconnected.
    discards_output: bool,
    /// Whether the session must close, so that faults no longer apply.
    is_closing: bool,
}

impl FaultDrive {
    pub(super) fn new(side: ClientSide, inner: Stream, order: FaultOrder, facts: &SessionFacts) -> Self {
        let ClientSide { client, unsent, tap, tapped, status, has_run_in_block, is_new, replaced } = side;
        let scope = facts.scope.clone();
        let (process, standard_strings) = (facts.process(), facts.standard_strings());
        let start = SwitchedState { status, major: scope.leases.major(), process, standard_strings };
        let faults = Arc::clone(&order.faults);
        let (mut up_pace, mut down_pace) = (Pace::default(), Pace::default());
        up_pace.limit(order.bandwidth);
        down_pace.limit(order.bandwidth);
        let mut session = FaultSession::new(Arc::clone(&faults), start);
        session.to_client = unsent;
        for (name, sql) in replaced {
            session.know_prepared(name, &sql);
        }
        Self {
            client,
            inner,
            tapped_down: session.to_client.len(),
            session,
            scope,
            faults,
            order,
            has_unread_state: !is_new,
            rests: true,
            tap,
            tapped_up: tapped,
            up: FrameBuffer::default(),
            down: FrameBuffer::default(),
            up_pace,
            down_pace,
            interruption: None,
            status,
            has_run_in_block,
            reworded: None,
            requested: None,
            client_ended: false,
            has_closed_writing: false,
            discards_output: false,
            is_closing: false,
        }
    }

    /// Serves the client until the session or the connection ends.
    pub(super) async fn run(mut self, mut notices: Notices, presence: ConnectionHandle, hold: HoldSender) {
        self.prepare().await;
        let order = self.order.clone();
        order.done();
        loop {
            let is_closing = self.is_closing;
            let event = tokio::select! {
                biased;
                () = must_close(&mut notices, &presence, &order), if !is_closing => Event::Closes,
                event = self.next_event() => event,
            };
            match event {
                Event::Closes => {
                    self.is_closing = true;
                    self.session.close();
                }
                Event::SessionEnded => return self.finish(&mut notices, &presence).await,
                Event::ReadsState => self.read_state().await,
                Event::Requested(request) => self.request(request).await,
                Event::Interrupted(_) if self.is_closing => {
                    self.session.close();
                    self.go_on();
                }
                Event::Interrupted(Interruption::Request(fault)) => {
                    let added = self.add(fault.map(|fault| vec![fault])).await;
                    self.session.execute_request(added);
                    self.go_on();
                }
                Event::Interrupted(Interruption::Delay(time)) => {
                    self.delay(time, must_close(&mut notices, &presence, &order)).await;
                }
                Event::Interrupted(Interruption::Bandwidth(rate)) => {
                    self.up_pace.limit(Some(rate));
                    self.down_pace.limit(Some(rate));
                    self.go_on();
                }
                Event::Interrupted(Interruption::Reset) => {
                    drop(self.inner);
                    return reset(self.client);
                }
                Event::Interrupted(Interruption::Silence) => {
                    hold.start();
                    return self.stay_silent(&mut notices, &presence).await;
                }
                Event::Interrupted(Interruption::Fatal(effect)) => {
                    if !self.rests {
                        order.terminate();
                    }
                    drop(self.inner);
                    self.faults.affect_sessions(&effect, 1);
                    return self.client.send_and_close(&[]).await;
                }
            }
        }
    }

    /// Waits for `time`. Returns early if the client disconnects or the session must close.
    async fn delay(&mut self, time: Duration, must_close: impl Future<Output = ()>) {
        tokio::select! {
            () = sleep(time) => {}
            // A client that only stopped writing still receives the delayed bytes, so wait until it disconnects.
            () = disconnects(&self.client) => {}
            () = closes_writing_side(&self.inner) => {}
            () = must_close => self.session.close(),
        }
        self.go_on();
    }

    /// Prepares the session for the client's next message.
    async fn prepare(&mut self) {
        let is_read_only = self.faults.is_read_only();
        if is_read_only {
            make_read_only(&mut self.inner, &mut self.down).await;
        }
        if self.may_read_state() {
            self.read_state().await;
        }
    }

    /// Returns true if the drive can query the session's state now. It can't before the first query of a transaction,
    /// because its own query would take the snapshot.
    fn may_read_state(&self) -> bool {
        self.has_unread_state && self.rests && (self.status == b'I' || self.has_run_in_block)
    }

    async fn read_state(&mut self) {
        self.has_unread_state = false;
        read_state(&mut self.inner, &mut self.down, &mut self.session, self.status == b'T').await;
    }

    async fn next_event(&mut self) -> Event {
        if !self.is_closing {
            return poll_fn(|context| self.poll(context)).await;
        }
        loop {
            let event = timeout(CLOSE_TIMEOUT, poll_fn(|context| self.poll(context)));
            match event.await {
                Ok(event) => return event,
                Err(_) if !self.session.to_client.is_empty() => return Event::SessionEnded,
                Err(_) => {}
            }
        }
    }

    /// Stores the session's next interruption, which ends the current one.
    fn go_on(&mut self) {
        self.interruption = self.session.interruption();
    }

    /// Adds the faults that a Query requests, and forwards the Query. If a fault is refused, makes the server refuse
    /// the Query.
    async fn request(&mut self, RequestMessage { message, faults }: RequestMessage) {
        let is_added = self.add(faults).await;
        self.session.observe_client(&if is_added { message } else { failing_message() });
        self.go_on();
    }

    /// Adds faults that the client has requested. If they are refused, returns false and replaces the server's next
    /// error with the reason.
    async fn add(&mut self, faults: Result<Vec<Fault>, FaultError>) -> bool {
        let scope = self.scope.clone();
        let add = move |faults: Vec<Fault>| faults.into_iter().try_for_each(|fault| scope.add(fault));
        let added = match faults {
            Err(FaultError { what, hint }) => Err(error(what).hint(hint)),
            // Adding blocks its thread until the lease's other sessions obey.
            Ok(faults) => match spawn_blocking(move || add(faults)).await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(why)) => Err(refusal(&why)),
                Err(_) => Err(error("the request has failed".to_owned())),
            },
        };
        self.reworded = added.err().map(|why| why.to_bytes());
        self.reworded.is_none()
    }

    /// Closes the client's connection after the session has ended. The client first receives the session's last bytes.
    async fn finish(mut self, notices: &mut Notices, presence: &ConnectionHandle) {
        self.session.to_client.extend_from_slice(self.down.left());
        tokio::select! {
            () = poll_fn(|context| self.poll_last_bytes(context)) => {}
            () = closes(notices, presence) => {}
        }
        let unsent = std::mem::take(&mut self.session.to_client);
        self.client.send_and_close(&unsent).await;
    }

    fn poll_last_bytes(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.flush_client(context);
        if self.session.to_client.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Keeps the client's connection open without reading or writing. The session sees a disconnected client.
    async fn stay_silent(self, notices: &mut Notices, presence: &ConnectionHandle) {
        drop((self.inner, self.tap));
        tokio::select! {
            () = stay_silent(&self.client, &self.faults, &self.scope) => {}
            () = closes(notices, presence) => {}
        }
    }

    /// Moves bytes until an event occurs.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Event> {
        loop {
            self.flush_session(context);
            self.flush_client(context);
            if self.interruption.is_some() {
                if !self.session.to_server.is_empty() || !self.session.to_client.is_empty() {
                    return Poll::Pending;
                }
                return self
                    .interruption
                    .take()
                    .map_or(Poll::Pending, |now| Poll::Ready(Event::Interrupted(now)));
            }
            if let Some(request) = self.requested.take() {
                return Poll::Ready(Event::Requested(request));
            }
            if self.take_from_session() {
                continue;
            }
            if self.may_read_state() && self.down.left().is_empty() && !self.is_closing {
                return Poll::Ready(Event::ReadsState);
            }
            if !self.is_closing && self.take_from_client() {
                continue;
            }
            if self.client_ended
                && !self.has_closed_writing
                && self.session.to_server.is_empty()
                && self.accepts_client()
            {
                self.has_closed_writing = true;
                if let Err(error) = self.inner.socket().finish() {
                    tracing::debug!(%error, "could not tell a session that its client has left");
                }
            }
            match (self.read_session(context), self.read_client(context)) {
                (Poll::Ready(false), _) => return Poll::Ready(Event::SessionEnded),
                (Poll::Pending, Poll::Pending) => {
                    self.up.shrink();
                    self.down.shrink();
                    return Poll::Pending;
                }
                _ => {}
            }
        }
    }

    fn accepts_client(&self) -> bool {
        self.is_closing || self.session.accepts_client() || self.up.left().is_empty()
    }

    fn flush_session(&mut self, context: &mut Context<'_>) {
        if flush(&mut self.session.to_server, &mut self.inner, &mut self.up_pace, context).is_err() {
            // The session has stopped reading and is about to send the reason, so drop the bytes for it.
            self.session.to_server.clear();
        }
    }

    fn flush_client(&mut self, context: &mut Context<'_>) {
        if self.is_closing {
            self.down_pace.limit(None);
        }
        // Show the bytes to the tap before the client receives them, because the client might then ask for
        // measurements.
        if let Some(tap) = &mut self.tap {
            tap.observe_server(&self.session.to_client[self.tapped_down..]);
        }
        let sent = flush(&mut self.session.to_client, &mut self.client, &mut self.down_pace, context);
        if sent.is_err() {
            (self.discards_output, self.client_ended) = (true, true);
        }
        if self.discards_output {
            self.session.to_client.clear();
        }
        self.tapped_down = self.session.to_client.len();
    }

    fn read_session(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        if self.session.to_client.len() > MAX_WAITING_BYTES || !self.down.has_room() {
            return Poll::Pending;
        }
        let Self { inner, down, .. } = self;
        read(inner, context, |bytes| down.add(bytes))
    }

    fn read_client(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        let is_full = self.session.to_server.len() > MAX_WAITING_BYTES || !self.up.has_room();
        if self.client_ended || self.is_closing || is_full {
            return Poll::Pending;
        }
        let Self { client, up, tap, tapped_up, .. } = self;
        let read = read(client, context, |bytes| {
            let seen = bytes.len().min(*tapped_up);
            *tapped_up -= seen;
            if let Some(tap) = tap {
                tap.observe_client(&bytes[seen..]);
            }
            up.add(bytes);
        });
        self.client_ended |= read == Poll::Ready(false);
        read
    }

    /// Processes messages from the server. Returns true if there were any.
    fn take_from_session(&mut self) -> bool {
        let mut busy = false;
        while self.interruption.is_none() && self.session.to_client.len() <= MAX_WAITING_BYTES {
            let Self { session, down, reworded, status, rests, .. } = self;
            if down.rest.0 > 0 {
                let mut piece = Vec::new();
                if !down.pass(&mut piece) {
                    break;
                }
                session.server_continues(&piece);
                busy = true;
                continue;
            }
            let Ok(Some((tag, length))) = down.head() else { break };
            let wanted = part(Side::Server, tag, length);
            let Some(message) = down.take(wanted) else { break };
            if tag == b'Z' {
                (*status, *rests) = (message[HEADER], true);
            }
            match reworded.take_if(|_| tag == b'E') {
                Some(error) => session.observe_server(&error),
                None => session.observe_server(message),
            }
            down.rest = (length - wanted, true);
            self.interruption = self.session.interruption();
            busy = true;
        }
        busy
    }

    /// Processes messages from the client. Returns true if there were any.
    fn take_from_client(&mut self) -> bool {
        let mut busy = false;
        while self.interruption.is_none()
            && self.requested.is_none()
            && self.session.to_server.len() <= MAX_WAITING_BYTES
        {
            let Self { session, up, status, rests, .. } = self;
            if up.rest.0 > 0 {
                let mut piece = Vec::new();
                if !up.pass(&mut piece) {
                    break;
                }
                session.client_continues(&piece);
                busy = true;
                continue;
            }
            if !session.accepts_client() {
                break;
            }
            let (tag, length) = match up.head() {
                Ok(Some(head)) => head,
                Ok(None) => break,
                // Forward the malformed bytes, so that the server refuses them.
                Err(MalformedFrame) => {
                    session.pass_malformed();
                    up.rest = (usize::MAX, true);
                    continue;
                }
            };
            let wanted = part(Side::Client, tag, length);
            let Some(message) = up.take(wanted) else { break };
            *rests = false;
            match requested_faults(tag, &message[HEADER..], *status == b'E') {
                Some(faults) => self.requested = Some(RequestMessage { message: message.to_vec(), faults }),
                None => session.observe_client(message),
            }
            up.rest = (length - wanted, true);
            self.interruption = self.session.interruption();
            busy = true;
        }
        busy
    }
}

/// Returns how many bytes of a message the session needs before it can process the message.
fn part(side: Side, tag: u8, length: usize) -> usize {
    length.min(HEADER.saturating_add(FaultSession::wanted(side, tag)))
}

fn error(what: String) -> ErrorResponse {
    ErrorResponse { severity: "ERROR".into(), ..ErrorResponse::fatal("22023", what) }
}

fn refusal(why: &LeaseError) -> ErrorResponse {
    let (detail, hint) = (why.detail().map(Into::into), why.hint().map(Into::into));
    ErrorResponse { detail, hint, ..error(why.to_string()) }
}

/// Waits until the session or the gateway must close.
async fn closes(notices: &mut Notices, presence: &ConnectionHandle) {
    tokio::select! {
        () = notices.closed() => {}
        () = presence.closed() => {}
    }
}

/// Waits until the session must close, or a fault makes the server end it.
async fn must_close(notices: &mut Notices, presence: &ConnectionHandle, order: &FaultOrder) {
    tokio::select! {
        () = closes(notices, presence) => {}
        () = order.terminates() => {}
    }
}

/// Writes as many bytes as the pace and the socket allow.
fn flush(
    bytes: &mut Vec<u8>,
    to: &mut Stream,
    pace: &mut Pace,
    context: &mut Context<'_>,
) -> std::io::Result<()> {
    let mut sent = 0;
    while sent < bytes.len() {
        let Poll::Ready(room) = pace.poll_room(context) else { break };
        let end = bytes.len().min(sent.saturating_add(room));
        match to.poll_send(context, &bytes[sent..end]) {
            Poll::Ready(count) => {
                let count = count?;
                pace.moved(count);
                sent += count;
            }
            Poll::Pending => break,
        }
    }
    bytes.drain(..sent);
    Ok(())
}

/// Reads once from a stream. Returns false at the end of the stream.
fn read(from: &mut Stream, context: &mut Context<'_>, mut see: impl FnMut(&[u8])) -> Poll<bool> {
    BUFFER.with_borrow_mut(|buffer| {
        from.poll_receive(context, buffer).map(|count| {
            let count = count.unwrap_or(0);
            see(&buffer[..count]);
            count > 0
        })
    })
}
