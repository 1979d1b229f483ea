//! Moves bytes between two sockets through a [`RollbackSession`].
//!
//! The drive buffers messages that the session must read completely, and forwards all others in pieces. If too many
//! bytes are waiting for one side, the drive stops reading from the other side.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::gate::Gate;
use super::session::RollbackSession;
use super::task::{Disposition, Turn};
use crate::buffer::BUFFER;
use crate::faults::{ClientSide, requests_fault};
use crate::frame_buffer::FrameBuffer;
use crate::statement_tap::Tap;
use crate::stream::Stream;
use lease::LeaseTransaction;

use pgwire::{ErrorResponse, HEADER, MalformedFrame, encode, frames, is_frontend_tag, split_zero};

/// Maximum number of bytes to buffer for one side. Above this, the drive stops reading from the other side.
const MAX_WAITING_BYTES: usize = 256 << 10;
/// Maximum time for the server to finish a client's work after the client has disconnected.
const WIND_DOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time for a client to read its last message.
const LAST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(1);

/// How a session ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    Client,
    Server,
    /// The session must close, but the client isn't reading its pending bytes.
    Closed,
    /// A fault ends the session as a server shutdown would.
    Terminated,
    /// The lease's transaction is lost.
    Broken(ErrorResponse),
    /// The server has responded to all messages, and the client's next message is waiting. That message requests a
    /// fault, unless the caller has called [`Drive::run_until_rest`].
    AtRest,
}

/// Connects a client and a server through the session between them.
#[allow(
    clippy::struct_excessive_bools,
    reason = "the flags are independent, and most combinations are valid"
)]
#[derive(Debug)]
pub(super) struct Drive {
    pub(super) client: Stream,
    pub(super) server: Stream,
    session: RollbackSession,
    gate: Arc<Gate>,
    /// Follows the statements that the client sees, which excludes injected ones.
    tap: Option<Box<Tap>>,
    /// Number of bytes that the tap has seen but the client hasn't received.
    tapped: usize,
    turn: Turn,
    up: FrameBuffer,
    down: FrameBuffer,
    /// Whether the client has sent its last byte.
    client_ended: bool,
    /// Whether the drive discards all bytes for the client because the client has disconnected.
    discards_output: bool,
    /// Whether the session must close. If so, the drive stops as soon as the client stops reading.
    is_closing: bool,
    /// Whether the client's next message requests a fault, so that the message must wait.
    requests_fault: bool,
    /// Whether to treat fault requests as ordinary statements: either the drive has already seen them, or the session
    /// can't have faults.
    has_faults: bool,
    /// Message that replaces the server's next error. It is the last message for the client.
    last_message: Option<Vec<u8>>,
    /// Whether a fault ends the session, so that the drive stops reading from the client.
    is_terminated: bool,
    /// Whether the drive stops before the client's next message, once the server has responded to all earlier messages.
    stops_at_rest: bool,
}

impl Drive {
    pub(super) fn new(
        client: Stream,
        server: Stream,
        session: RollbackSession,
        gate: Arc<Gate>,
        tap: Option<Box<Tap>>,
    ) -> Self {
        let (up, down) = (FrameBuffer::default(), FrameBuffer::default());
        // The rest of the startup response isn't the response to a statement, so the tap must not see it.
        let tapped = session.to_client.len();
        Self {
            client,
            server,
            session,
            gate,
            tap,
            tapped,
            turn: Turn::Nobody,
            up,
            down,
            client_ended: false,
            discards_output: false,
            is_closing: false,
            requests_fault: false,
            has_faults: false,
            last_message: None,
            is_terminated: false,
            stops_at_rest: false,
        }
    }

    /// Like [`Self::run`], but for a session that must close: stops as soon as the client stops reading.
    pub(super) async fn run_while_client_reads(&mut self) -> End {
        self.is_closing = true;
        self.run().await
    }

    /// Forwards until the client or the server closes its connection. This future is cancel-safe: after dropping it,
    /// the caller can call the function again.
    pub(super) async fn run(&mut self) -> End {
        loop {
            let turn = self.session.turn();
            if turn != self.turn {
                self.gate.set(turn).await;
                self.turn = turn;
            }
            let is_held_up = |drive: &Self| drive.is_closing && !drive.session.to_client.is_empty();
            let end = poll_fn(|context| match self.poll(context) {
                Poll::Pending if is_held_up(self) => Poll::Ready(Some(End::Closed)),
                other => other,
            });
            if let Some(end) = end.await {
                return end;
            }
        }
    }

    /// Drives until the server has responded to all messages. Returns false if the session ends before that.
    /// Cancel-safe, like [`Self::run`].
    pub(super) async fn run_until_rest(&mut self) -> bool {
        self.stops_at_rest = true;
        let end = self.run().await;
        self.stops_at_rest = false;
        end == End::AtRest
    }

    /// Replaces the client's connection with `other`, and returns the client's side. The caller must first wait for
    /// [`Self::run_until_rest`] to return true.
    pub(super) fn exchange_client(&mut self, other: Stream, is_new: bool) -> ClientSide {
        let client = std::mem::replace(&mut self.client, other);
        let unread = self.up.left().to_vec();
        self.up = FrameBuffer::default();
        (self.tapped, self.requests_fault, self.has_faults) = (0, false, true);
        ClientSide {
            tapped: unread.len(),
            client: client.with_unread(unread),
            unsent: std::mem::take(&mut self.session.to_client),
            tap: self.tap.take(),
            status: self.session.client_status(),
            // The lease's transaction started before the client's transaction block, so it already has a snapshot.
            has_run_in_block: self.session.client_status() == b'T',
            is_new,
            replaced: self.session.names.replaced(),
        }
    }

    /// Returns true if the client has received the server's last error.
    pub(super) fn has_fatal_error(&self) -> bool {
        self.session.has_fatal_error
    }

    /// Treats fault requests as ordinary statements from now on, because the session can't obey them.
    pub(super) fn ignore_fault_requests(&mut self) {
        (self.requests_fault, self.has_faults, self.stops_at_rest) = (false, true, false);
    }

    /// Lets the server finish a disconnected client's work. `interrupt` cancels a statement that is still running after
    /// `patience`. Returns the transaction, or `None` if the lease must end.
    pub(super) async fn wind_down(
        &mut self,
        patience: Duration,
        interrupt: impl Future<Output = ()>,
    ) -> Option<LeaseTransaction> {
        if self.up.rest.0 > 0 || self.session.broken.is_some() {
            return None;
        }
        self.gate.set(Turn::Nobody).await;
        (self.client_ended, self.discards_output) = (true, true);
        self.up = FrameBuffer::default();
        // Like a plain server, finish the statements that have been received, but undo a pipeline without its Sync.
        if !self.session.fail_copy() && !self.session.has_open_pipeline() {
            let quiet = poll_fn(|context| self.poll_until_quiet(context));
            if timeout(patience, quiet).await.is_err() {
                tracing::debug!("canceling the statement of a client that has gone");
            }
        }
        self.session.client_disconnected();
        if !self.session.is_idle() || !self.session.to_server.is_empty() {
            if self.turn == Turn::Client {
                interrupt.await;
            }
            let quiet = poll_fn(|context| self.poll_until_quiet(context));
            timeout(WIND_DOWN_TIMEOUT, quiet).await.ok().filter(|quiet| *quiet)?;
        }
        self.down.left().is_empty().then(|| std::mem::take(&mut self.session.transaction))
    }

    /// Ends the client's session as a server shutdown would: `interrupt` cancels its statement, and `message` replaces
    /// the resulting error.
    pub(super) async fn terminate(&mut self, message: Vec<u8>, interrupt: impl Future<Output = ()>) {
        (self.last_message, self.is_terminated) = (Some(message), true);
        if self.session.turn() == Turn::Client {
            if !self.session.fail_copy() {
                interrupt.await;
            }
            let error = poll_fn(|context| self.poll_until_error(context));
            if timeout(WIND_DOWN_TIMEOUT, error).await.is_err() {
                tracing::debug!("a statement did not end with its session");
            }
        }
        // In the middle of a server message, the gateway can't insert its own message.
        let message = self.last_message.take().filter(|_| self.down.rest.0 == 0);
        let bytes = [std::mem::take(&mut self.session.to_client), message.unwrap_or_default()].concat();
        if !matches!(timeout(LAST_MESSAGE_TIMEOUT, self.client.write_all(&bytes)).await, Ok(Ok(()))) {
            tracing::debug!("a client did not read the last message");
        }
        self.is_terminated = false;
    }

    /// Forwards until the last message has replaced the error, or until the server has no work left for the client.
    fn poll_until_error(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.last_message.is_none() || self.session.turn() != Turn::Client {
                return Poll::Ready(());
            }
            self.turn = self.session.turn();
            match self.poll(context) {
                Poll::Ready(None) => {}
                Poll::Ready(Some(_)) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Returns the client's connection and the bytes that the client hasn't received yet. In the middle of a message,
    /// these are `None`, because the gateway can't insert its own message there.
    pub(super) fn into_client(self) -> (Stream, Option<Vec<u8>>) {
        let unsent = self.session.to_client;
        (self.client, (self.down.rest.0 == 0).then_some(unsent))
    }

    fn is_at_rest(&self) -> bool {
        self.session.is_at_rest()
            && self.up.rest.0 == 0
            && self.down.rest.0 == 0
            && self.down.left().is_empty()
    }

    fn poll_until_quiet(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        loop {
            if self.session.is_idle() && self.session.to_server.is_empty() {
                return Poll::Ready(true);
            }
            // The cancel gate needn't know about this turn, because clients can no longer use the cancel key.
            self.turn = self.session.turn();
            match self.poll(context) {
                Poll::Ready(None) => {}
                Poll::Ready(Some(_)) => return Poll::Ready(self.session.is_idle()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Reads, decides and writes until the drive must wait or the session ends. Returns `None` when the turn has
    /// changed.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<End>> {
        loop {
            if let Some(why) = &self.session.broken {
                return Poll::Ready(Some(End::Broken(why.clone())));
            }
            if flush(&mut self.session.to_server, &mut self.server, context).is_err() {
                // The server has stopped reading and is about to send the reason, so drop the bytes for it.
                self.session.to_server.clear();
            }
            if self.flush_to_client(context).is_err() {
                return Poll::Ready(Some(End::Client));
            }
            let mut busy = self.take_from_server();
            if self.is_terminated && self.last_message.is_none() {
                return Poll::Ready(None);
            }
            if !busy && self.stops_at_rest && self.is_at_rest() {
                return Poll::Ready(Some(End::AtRest));
            }
            if !self.client_ended && !self.is_terminated && self.take_from_client() {
                busy = true;
            }
            if self.requests_fault {
                return Poll::Ready(Some(End::AtRest));
            }
            if self.session.turn() != self.turn {
                return Poll::Ready(None);
            }
            if busy {
                continue;
            }
            if self.has_client_left() {
                return Poll::Ready(Some(End::Client));
            }
            match (self.read_server(context), self.read_client(context)) {
                (Poll::Ready(false), _) => {
                    // The server's last error may be held up by an incomplete client message, which no longer matters.
                    self.up = FrameBuffer::default();
                    self.take_from_server();
                    return Poll::Ready(Some(End::Server));
                }
                (Poll::Pending, Poll::Pending) => {
                    self.up.shrink();
                    self.down.shrink();
                    return Poll::Pending;
                }
                _ => {}
            }
        }
    }

    /// Sends pending bytes to the client, or drops them if the client has disconnected.
    fn flush_to_client(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if self.discards_output {
            self.session.to_client.clear();
            return Ok(());
        }
        // Show the bytes to the tap before the client receives them, because the client might then ask for
        // measurements.
        if let Some(tap) = &mut self.tap {
            tap.observe_server(&self.session.to_client[self.tapped..]);
        }
        let sent = flush(&mut self.session.to_client, &mut self.client, context);
        self.tapped = self.session.to_client.len();
        sent
    }

    /// Returns true if the session is over because the client has disconnected. After a Terminate, the server first
    /// completes the client's earlier messages.
    fn has_client_left(&self) -> bool {
        let waits = !self.session.is_idle() && frames(self.up.left()).any(|frame| frame.tag == b'X');
        self.client_ended && !self.discards_output && !waits
    }

    fn read_server(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        if self.session.to_client.len() > MAX_WAITING_BYTES || !self.down.has_room() {
            return Poll::Pending;
        }
        read(&mut self.server, &mut self.down, None, context)
    }

    fn read_client(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        let is_full = self.session.to_server.len() > MAX_WAITING_BYTES || !self.up.has_room();
        if self.client_ended || self.is_terminated || is_full {
            return Poll::Pending;
        }
        let read = read(&mut self.client, &mut self.up, self.tap.as_deref_mut(), context);
        self.client_ended |= read == Poll::Ready(false);
        read
    }

    /// Processes messages from the server. Returns true if there were any.
    fn take_from_server(&mut self) -> bool {
        let Self { session, up, down, turn, last_message, .. } = self;
        let mut busy = false;
        while session.to_client.len() <= MAX_WAITING_BYTES && session.broken.is_none() {
            if down.rest.0 > 0 {
                if !down.pass(&mut session.to_client) {
                    break;
                }
                busy = true;
                continue;
            }
            let (tag, length) = match down.head() {
                Ok(Some(head)) => head,
                Ok(None) => break,
                Err(error) => {
                    session.broken = Some(ErrorResponse::violation(format!("the server sent an {error}")));
                    return true;
                }
            };
            match session.server_head(tag) {
                // After an error, the session injects messages, but these must not end up inside a client message that
                // is only partly forwarded. Wait for the rest of that message: the server reads it before it sends
                // anything else.
                Disposition::Whole if tag == b'E' && up.rest.0 > 0 && up.rest.1 => break,
                Disposition::Whole => {
                    let Some(message) = down.take(length) else { break };
                    let before = session.to_client.len();
                    session.server_message(message);
                    if let Some(last) = last_message.take_if(|_| tag == b'E') {
                        let added = session.to_client.split_off(before);
                        let earlier = frames(&added).take_while(|frame| frame.tag != b'E');
                        session.to_client.extend(earlier.flat_map(|frame| encode(frame.tag, frame.body)));
                        session.to_client.extend(last);
                        return true;
                    }
                }
                disposition => down.rest = (length, disposition == Disposition::Pass),
            }
            busy = true;
            if session.turn() != *turn {
                break;
            }
        }
        busy
    }

    /// Processes messages from the client. Returns true if there were any.
    fn take_from_client(&mut self) -> bool {
        let Self { session, up, down, turn, .. } = self;
        let mut busy = false;
        while session.to_server.len() <= MAX_WAITING_BYTES && session.broken.is_none() {
            if up.rest.0 > 0 {
                if !up.pass(&mut session.to_server) {
                    break;
                }
                busy = true;
                continue;
            }
            let (tag, length) = match up.head() {
                Ok(Some(head)) => head,
                Ok(None) => break,
                // A PostgreSQL server disconnects the client after an invalid length, unless it rejects the message
                // type first.
                Err(MalformedFrame) => {
                    (up.left().first().copied().filter(|tag| !is_frontend_tag(*tag)).unwrap_or(b'X'), 0)
                }
            };
            let disposition = session.client_head(tag);
            match disposition {
                Disposition::Wait => break,
                // Nothing can follow a Terminate.
                _ if tag == b'X' => {
                    self.client_ended = true;
                    *up = FrameBuffer::default();
                    return true;
                }
                Disposition::Whole => {
                    let may_request = !self.has_faults && session.is_at_rest();
                    let Some(message) = up.take(length) else { break };
                    if may_request && requests_fault(tag, &message[HEADER..]) {
                        up.put_back(length);
                        // The drive that obeys faults reads only complete messages from the server.
                        self.requests_fault = down.rest.0 == 0;
                        return busy || self.requests_fault;
                    }
                    session.client_message(tag, &message[HEADER..]);
                }
                Disposition::Names => {
                    let left = up.left();
                    let body = &left[HEADER..left.len().min(length)];
                    let names = split_zero(body).0.len() + split_zero(split_zero(body).1).0.len() + 2;
                    if names > body.len() && body.len() + HEADER < length {
                        up.wanted = left.len() + 1;
                        break;
                    }
                    session.client_bind(body);
                    up.rest = (length, true);
                }
                Disposition::Pass | Disposition::Drop => up.rest = (length, disposition == Disposition::Pass),
            }
            busy = true;
            if session.turn() != *turn {
                break;
            }
        }
        busy
    }
}

/// Writes as many bytes as the socket has room for.
fn flush(bytes: &mut Vec<u8>, to: &mut Stream, context: &mut Context<'_>) -> io::Result<()> {
    let mut sent = 0;
    while sent < bytes.len() {
        match to.poll_send(context, &bytes[sent..]) {
            Poll::Ready(count) => sent += count?,
            Poll::Pending => break,
        }
    }
    bytes.drain(..sent);
    Ok(())
}

/// Reads once. Returns false at the end of the stream.
fn read(
    from: &mut Stream,
    to: &mut FrameBuffer,
    tap: Option<&mut Tap>,
    context: &mut Context<'_>,
) -> Poll<bool> {
    BUFFER.with_borrow_mut(|buffer| {
        from.poll_receive(context, buffer).map(|count| {
            let count = count.unwrap_or(0);
            if let Some(tap) = tap {
                tap.observe_client(&buffer[..count]);
            }
            to.add(&buffer[..count]);
            count > 0
        })
    })
}

#[cfg(test)]
mod tests;
