//! Forwards bytes between a client and a server until one of them closes its connection.
//!
//! All sessions on a thread read into the same buffer, and the gateway writes the bytes to the other side immediately.
//! If that side's socket is full, the session holds on to the remaining bytes and writes them before reading more from
//! the sender. Idle sessions therefore need no buffer.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pgwire::{Conversation, FramePrefix, SessionTraces, SqlLexer, TERMINATE, Token, TokenKind, split_zero};
use tokio::time::timeout;

use crate::buffer::BUFFER;
use crate::faults::has_request;
use crate::statement_tap::Tap;
use crate::stream::Stream;

/// How long the server can be silent after the client has disconnected before the gateway closes the connection.
const DRAIN: Duration = Duration::from_secs(30);

/// How long both sides of a session must be silent before the server counts as idle, if the gateway doesn't know
/// whether responses are outstanding.
const QUIET: Duration = Duration::from_millis(50);

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The client sent Terminate while the server was idle. The gateway didn't forward this message, so the server can
    /// serve another client.
    Idle,
    /// The client disconnected, but the server might still send something: see [`Forward::drain`].
    Client,
    /// The server closed the connection first.
    Server,
    /// The session must close, and the client isn't reading its pending bytes: see [`Forward::run_while_client_reads`].
    Closed,
    /// The client requests a fault with SET. The gateway hasn't forwarded the request: see [`Forward::run_until_rest`].
    FaultRequest,
}

/// Function that ends all backends that are waiting for clients. Such a backend would make a statement such as DROP
/// DATABASE fail if it was connected to that database.
pub(crate) type EndWaitingBackends = Box<dyn FnMut() + Send>;

/// The two connections of a session, and the bytes in transit between them.
pub(crate) struct Forward {
    pub(crate) client: Stream,
    pub(crate) server: Stream,
    pub(crate) conversation: Conversation,
    traces: SessionTraces,
    vacate: EndWaitingBackends,
    /// Follows the session's statements for the listeners, if there are any.
    tap: Option<Box<Tap>>,
    /// Bytes from the client that must still be written to the server.
    up: PendingBytes,
    /// Bytes from the server that must still be written to the client.
    down: PendingBytes,
    /// Whether the client has disconnected while the server is still connected.
    is_draining: bool,
    /// Whether to forward the client's fault requests: either the drive has already seen them, or the session can't
    /// have faults.
    has_faults: bool,
}

#[derive(Debug, Default)]
struct PendingBytes {
    bytes: Vec<u8>,
    written: usize,
}

impl PendingBytes {
    /// Writes all pending bytes.
    fn poll_flush(&mut self, to: &mut Stream, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest @ [_, ..]) = self.bytes.get(self.written..) {
            self.written += ready!(to.poll_send(context, rest))?;
        }
        if self.written > 0 {
            *self = Self::default();
        }
        Poll::Ready(Ok(()))
    }

    /// Writes as many bytes as the socket has room for and retains the rest. `self.bytes` must be empty.
    fn send(&mut self, bytes: &[u8], to: &mut Stream, context: &mut Context<'_>) -> io::Result<()> {
        let mut written = 0;
        while written < bytes.len() {
            match to.poll_send(context, &bytes[written..]) {
                Poll::Ready(count) => written += count?,
                Poll::Pending => {
                    self.bytes = bytes[written..].to_vec();
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Why forwarding stops: a side ended the session, or the client requests a fault.
enum Stop {
    Client,
    Server,
    FaultRequest,
}

/// A statement that concerns the gateway.
enum GatewayStatement {
    ChangesDatabase,
    RequestsFault,
}

/// Session state that the gateway derives from the session's messages.
pub(crate) struct Observed {
    conversation: Conversation,
    traces: SessionTraces,
}

impl Observed {
    /// Creates the state of a new session. `startup_response` is the server's startup response.
    pub(crate) fn new(is_replication: bool, startup_response: &[u8]) -> Self {
        let traces = SessionTraces::of_session(startup_response);
        Self { conversation: Conversation::new(is_replication), traces }
    }
}

impl Forward {
    /// Creates a forwarder. The client receives `unsent` before any bytes from the server.
    pub(crate) fn new(
        client: Stream,
        server: Stream,
        observed: Observed,
        vacate: EndWaitingBackends,
        tap: Option<Box<Tap>>,
        unsent: Vec<u8>,
    ) -> Self {
        let Observed { conversation, traces } = observed;
        let down = PendingBytes { bytes: unsent, written: 0 };
        Self {
            client,
            server,
            conversation,
            traces,
            vacate,
            tap,
            up: PendingBytes::default(),
            down,
            is_draining: false,
            has_faults: false,
        }
    }

    /// Forwards until the session ends. This future is cancel-safe: after dropping it, the caller can call the function
    /// again.
    pub(crate) async fn run(&mut self) -> End {
        match poll_fn(|context| self.poll(context)).await {
            Stop::Server => End::Server,
            Stop::Client if self.is_server_reusable() => End::Idle,
            Stop::Client => End::Client,
            Stop::FaultRequest => End::FaultRequest,
        }
    }

    /// Forwards until the server has responded to all messages. Returns false if the session ends before that. If
    /// `holds_client` is true, reads nothing from the client. Cancel-safe, like [`Self::run`].
    pub(crate) async fn run_until_rest(&mut self, holds_client: bool) -> bool {
        let mut owed = None;
        loop {
            let rest = poll_fn(|context| self.poll_until_rest(holds_client, context));
            if let Ok(rests) = timeout(QUIET, rest).await {
                return rests;
            }
            // After a COPY or an error, the conversation might wait for a response that never comes. If nothing changes
            // while both sides are silent, treat the session as at rest.
            let seen = Some(self.conversation.owed()).filter(|_| self.conversation.may_be_at_rest());
            if seen.is_some() && seen == owed {
                return true;
            }
            owed = seen;
        }
    }

    fn poll_until_rest(&mut self, holds_client: bool, context: &mut Context<'_>) -> Poll<bool> {
        if self.conversation.is_at_rest() {
            return Poll::Ready(true);
        }
        let stop = if holds_client {
            if let Poll::Ready(Err(error)) = self.up.poll_flush(&mut self.server, context) {
                tracing::debug!(%error, "a server has stopped reading, and is about to send the reason");
            }
            self.poll_down(context)
        } else {
            self.poll(context)
        };
        match stop {
            // The request stays in the client's connection until the caller reads it.
            Poll::Ready(Stop::FaultRequest) => self.poll_until_rest(true, context),
            Poll::Ready(_) => Poll::Ready(false),
            Poll::Pending if self.conversation.is_at_rest() => Poll::Ready(true),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Forwards fault requests from now on, because the session can't obey them.
    pub(crate) fn ignore_fault_requests(&mut self) {
        self.has_faults = true;
    }

    /// Returns true if the client has disconnected and the server might still send something.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// Replaces the client's connection with `other`. Returns the previous connection, the bytes that the client must
    /// receive first, and the tap. The caller must first wait for [`Self::run_until_rest`] to return true.
    pub(crate) fn exchange_client(&mut self, other: Stream) -> (Stream, Vec<u8>, Option<Box<Tap>>) {
        self.has_faults = true;
        let unsent = self.take_unsent();
        (std::mem::replace(&mut self.client, other), unsent, self.tap.take())
    }

    /// Forwards the last bytes of a session that must close, while the client is reading. The caller must drop the
    /// future of [`Self::run`] first.
    pub(crate) async fn run_while_client_reads(&mut self) -> End {
        if self.is_draining {
            return End::Client;
        }
        poll_fn(|context| match self.poll(context) {
            Poll::Ready(Stop::Server) => Poll::Ready(End::Server),
            Poll::Ready(_) => Poll::Ready(End::Client),
            Poll::Pending if !self.down.bytes.is_empty() => Poll::Ready(End::Closed),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// Removes and returns the server's bytes that the client hasn't received yet. The client must receive these bytes
    /// before any other message.
    pub(crate) fn take_unsent(&mut self) -> Vec<u8> {
        let PendingBytes { mut bytes, written } = std::mem::take(&mut self.down);
        bytes.drain(..written);
        bytes
    }

    /// Returns true if the server can serve another client, because the client sent Terminate outside a transaction and
    /// its session left no traces.
    fn is_server_reusable(&self) -> bool {
        let Self { conversation, traces, .. } = self;
        conversation.is_terminated() && conversation.is_idle() && traces.leaves_nothing()
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Stop> {
        // Read from the client first, to see a Terminate message before the connection closes.
        if let Poll::Ready(stop) = self.poll_up(context) {
            return Poll::Ready(stop);
        }
        self.poll_down(context)
    }

    /// Forwards from the client to the server.
    fn poll_up(&mut self, context: &mut Context<'_>) -> Poll<Stop> {
        let Self { client, server, conversation, traces, vacate, tap, up, has_faults, .. } = self;
        loop {
            // If the server has stopped reading, it is about to send the reason.
            if ready!(up.poll_flush(server, context)).is_err() {
                return Poll::Pending;
            }
            if conversation.is_terminated() {
                return Poll::Ready(Stop::Client);
            }
            let sent = BUFFER.with_borrow_mut(|buffer| {
                let count = ready!(client.poll_receive(context, buffer)).unwrap_or(0);
                let before = conversation.client_side();
                let mut found = None;
                let passed = conversation.observe_client(&buffer[..count], |frame| {
                    traces.observe_client(frame);
                    if let Some(statement) = statement(frame).and_then(gateway_statement) {
                        found = Some(statement);
                    }
                });
                match found {
                    Some(GatewayStatement::ChangesDatabase) => vacate(),
                    Some(GatewayStatement::RequestsFault)
                        if !*has_faults && conversation.forget_since(before) =>
                    {
                        client.put_back(&buffer[..count]);
                        return Poll::Ready(Err(Stop::FaultRequest));
                    }
                    None | Some(GatewayStatement::RequestsFault) => {}
                }
                if let Some(tap) = tap {
                    tap.observe_client(&buffer[..passed]);
                }
                if count == 0 {
                    return Poll::Ready(Err(Stop::Client));
                }
                Poll::Ready(Ok(up.send(&buffer[..passed], server, context)))
            });
            match ready!(sent) {
                Err(stop) => return Poll::Ready(stop),
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Poll::Pending,
            }
        }
    }

    /// Forwards from the server to the client.
    fn poll_down(&mut self, context: &mut Context<'_>) -> Poll<Stop> {
        let Self { client, server, conversation, tap, down, .. } = self;
        loop {
            if ready!(down.poll_flush(client, context)).is_err() {
                return Poll::Ready(Stop::Client);
            }
            let sent = BUFFER.with_borrow_mut(|buffer| {
                let count = ready!(server.poll_receive(context, buffer)).unwrap_or(0);
                conversation.observe_server(&buffer[..count]);
                if let Some(tap) = tap {
                    tap.observe_server(&buffer[..count]);
                }
                Poll::Ready((count > 0).then(|| down.send(&buffer[..count], client, context)))
            });
            match ready!(sent) {
                None => return Poll::Ready(Stop::Server),
                Some(Ok(())) => {}
                Some(Err(_)) => return Poll::Ready(Stop::Client),
            }
        }
    }

    /// Closes the writing side to the server, because the client has disconnected. Then forwards the server's last
    /// messages until the server closes the connection or is silent for too long.
    pub(crate) async fn drain(&mut self) {
        let (mut is_closed, mut discards) = (false, false);
        self.is_draining = true;
        loop {
            let progress = poll_fn(|context| {
                if !is_closed && self.poll_close_server(context).is_ready() {
                    is_closed = true;
                }
                self.poll_rest(context, &mut discards)
            });
            if timeout(DRAIN, progress).await != Ok(true) {
                return;
            }
        }
    }

    /// Writes the remaining bytes to the server and then closes the writing side.
    fn poll_close_server(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if ready!(self.up.poll_flush(&mut self.server, context)).is_ok() {
            let farewell = if self.conversation.is_terminated() { TERMINATE } else { &[] };
            // If there is no room for so few bytes, the server isn't reading. In that case, closing the connection has
            // to do.
            let closed = self.server.socket().send(farewell).and_then(|_| self.server.socket().finish());
            if let Err(error) = closed {
                tracing::debug!(%error, "could not tell the server that its client has left");
            }
        }
        Poll::Ready(())
    }

    /// Forwards one chunk, or discards it if the client has stopped reading (`discards`). Returns false at the end of
    /// the stream.
    fn poll_rest(&mut self, context: &mut Context<'_>, discards: &mut bool) -> Poll<bool> {
        let Self { client, server, conversation, tap, down, .. } = self;
        if !*discards && ready!(down.poll_flush(client, context)).is_err() {
            *discards = true;
        }
        BUFFER.with_borrow_mut(|buffer| {
            let count = ready!(server.poll_receive(context, buffer)).unwrap_or(0);
            conversation.observe_server(&buffer[..count]);
            if let Some(tap) = tap {
                tap.observe_server_without_client(&buffer[..count]);
            }
            *discards = *discards || down.send(&buffer[..count], client, context).is_err();
            Poll::Ready(count > 0)
        })
    }
}

/// Returns the SQL text in a frame from the client, or as much of the text as has arrived.
fn statement(frame: FramePrefix<'_>) -> Option<&[u8]> {
    match frame.tag {
        b'Q' => Some(frame.body),
        b'P' => Some(split_zero(frame.body).1),
        _ => None,
    }
}

/// Recognizes `SET pgfresh.fault`, and CREATE, ALTER and DROP DATABASE, which the server might refuse because of other
/// sessions in the database. A client must send the latter alone, so only the start of the text matters for them.
fn gateway_statement(sql: &[u8]) -> Option<GatewayStatement> {
    let mut lexer = SqlLexer::new(sql, true);
    let verbs = [&b"drop"[..], b"create", b"alter"];
    let verb = lexer.token()?;
    if verbs.iter().any(|word| verb.is_word(word)) {
        return lexer.token()?.is_word(b"database").then_some(GatewayStatement::ChangesDatabase);
    }
    // Only SET and set_config request a fault, and a request that follows another statement needs a semicolon before
    // it. Most statements contain none of these, so stop here.
    let may_request = verb.is_word(b"set")
        || verb.is_word(b"select") && lexer.token().is_some_and(|next| may_be_set_config(&next))
        || sql.contains(&b';');
    (may_request && has_request(sql)).then_some(GatewayStatement::RequestsFault)
}

/// Returns true if a `set_config` call can begin with this token.
fn may_be_set_config(token: &Token<'_>) -> bool {
    [&b"set_config"[..], b"pg_catalog"].iter().any(|name| token.is_word(name))
        || token.kind == TokenKind::QuotedName
}

#[cfg(test)]
mod tests;
