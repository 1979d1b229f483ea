//! Bytes from one end to the other, until one of them ends.
//!
//! What has been read is written at once, from a buffer that all sessions of a thread share; what the other end has no
//! room for is kept, and no more is read until it is written. An idle session holds no buffer at all.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pgwire::{Conversation, FramePrefix, SessionTraces, SqlLexer, TERMINATE, split_zero};
use tokio::time::timeout;

use crate::buffer::BUFFER;
use crate::stream::Stream;
use crate::tap::Tap;

/// How long the server may say nothing after the client has ended, before it is cut off.
const DRAIN: Duration = Duration::from_secs(30);

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The client said Terminate, to a server that is idle, has not heard of it, and may serve another client.
    Idle,
    /// The client ended; the server may still have something to say: see [`Forward::drain`].
    Client,
    /// The server ended first.
    Server,
    /// The session is to be closed, and the client does not read what it was told before: see [`Forward::hurry`].
    Closed,
}

/// Has backends that wait in databases go, which would be in the way of a statement about these.
pub(crate) type Vacate = Box<dyn Fn() + Send>;

/// A client, a server, and what is on its way between them.
pub(crate) struct Forward {
    pub(crate) client: Stream,
    pub(crate) server: Stream,
    pub(crate) conversation: Conversation,
    traces: SessionTraces,
    vacate: Vacate,
    /// The statements that run are wanted.
    tap: Option<Box<Tap>>,
    /// Read from the client and not written yet.
    up: Kept,
    /// Read from the server and not written yet.
    down: Kept,
    /// The client has ended; the server has not.
    is_draining: bool,
}

#[derive(Debug, Default)]
struct Kept {
    bytes: Vec<u8>,
    written: usize,
}

impl Kept {
    /// Writes all that is kept.
    fn poll_flush(&mut self, to: &mut Stream, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest @ [_, ..]) = self.bytes.get(self.written..) {
            self.written += ready!(to.poll_send(context, rest))?;
        }
        if self.written > 0 {
            *self = Self::default();
        }
        Poll::Ready(Ok(()))
    }

    /// Writes what there is room for, and keeps the rest. Nothing may be kept already.
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

/// Why one direction, or all, came to its end.
enum Stop {
    Client,
    Server,
}

impl Forward {
    /// `unsent` is what the client is still to be told before all that the server says.
    pub(crate) fn new(
        client: Stream,
        server: Stream,
        (conversation, traces): (Conversation, SessionTraces),
        vacate: Vacate,
        tap: Option<Box<Tap>>,
        unsent: Vec<u8>,
    ) -> Self {
        let down = Kept { bytes: unsent, written: 0 };
        Self {
            client,
            server,
            conversation,
            traces,
            vacate,
            tap,
            up: Kept::default(),
            down,
            is_draining: false,
        }
    }

    /// Forwards until the session has ended. May be dropped at any time between two polls, and then be called again.
    pub(crate) async fn run(&mut self) -> End {
        match poll_fn(|context| self.poll(context)).await {
            Stop::Server => End::Server,
            Stop::Client if self.may_go_on() => End::Idle,
            Stop::Client => End::Client,
        }
    }

    /// The session is to be closed: the same for as long as the client takes all that it is told. To be called once the other
    /// was dropped.
    pub(crate) async fn hurry(&mut self) -> End {
        if self.is_draining {
            return End::Client;
        }
        poll_fn(|context| match self.poll(context) {
            Poll::Ready(Stop::Client) => Poll::Ready(End::Client),
            Poll::Ready(Stop::Server) => Poll::Ready(End::Server),
            Poll::Pending if !self.down.bytes.is_empty() => Poll::Ready(End::Closed),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// What the server has said and the client had no room for yet: comes before all else that it is told.
    pub(crate) fn take_unsaid(&mut self) -> Vec<u8> {
        let Kept { mut bytes, written } = std::mem::take(&mut self.down);
        bytes.drain(..written);
        bytes
    }

    /// Whether the server may serve another client: this one has said Terminate, owes nothing and has left nothing.
    fn may_go_on(&self) -> bool {
        let Self { conversation, traces, .. } = self;
        conversation.is_terminated() && conversation.is_idle() && traces.leaves_nothing()
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Stop> {
        // The client's side first: a Terminate then ends it all before its end-of-file does.
        if let Poll::Ready(stop) = self.poll_up(context) {
            return Poll::Ready(stop);
        }
        self.poll_down(context)
    }

    /// Client to server.
    fn poll_up(&mut self, context: &mut Context<'_>) -> Poll<Stop> {
        let Self { client, server, conversation, traces, vacate, tap, up, .. } = self;
        loop {
            // A server that takes nothing any more is about to say why.
            if ready!(up.poll_flush(server, context)).is_err() {
                return Poll::Pending;
            }
            if conversation.is_terminated() {
                return Poll::Ready(Stop::Client);
            }
            let sent = BUFFER.with_borrow_mut(|buffer| {
                let count = ready!(client.poll_receive(context, buffer)).unwrap_or(0);
                let mut clears_the_way = false;
                let passed = conversation.client_says(&buffer[..count], |frame| {
                    traces.client_says(frame);
                    clears_the_way |= statement(frame).is_some_and(is_about_a_database);
                });
                if let Some(tap) = tap {
                    tap.client_says(&buffer[..passed]);
                }
                if clears_the_way {
                    vacate();
                }
                Poll::Ready((count > 0).then(|| up.send(&buffer[..passed], server, context)))
            });
            match ready!(sent) {
                None => return Poll::Ready(Stop::Client),
                Some(Ok(())) => {}
                Some(Err(_)) => return Poll::Pending,
            }
        }
    }

    /// Server to client.
    fn poll_down(&mut self, context: &mut Context<'_>) -> Poll<Stop> {
        let Self { client, server, conversation, tap, down, .. } = self;
        loop {
            if ready!(down.poll_flush(client, context)).is_err() {
                return Poll::Ready(Stop::Client);
            }
            let sent = BUFFER.with_borrow_mut(|buffer| {
                let count = ready!(server.poll_receive(context, buffer)).unwrap_or(0);
                conversation.server_says(&buffer[..count]);
                if let Some(tap) = tap {
                    tap.server_says(&buffer[..count]);
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

    /// Tells the server that the client has ended, and passes on what it still has to say, for as long as it goes on
    /// saying something.
    pub(crate) async fn drain(&mut self) {
        let (mut told, mut deaf) = (false, false);
        self.is_draining = true;
        loop {
            let progress = poll_fn(|context| {
                if !told && self.poll_farewell(context).is_ready() {
                    told = true;
                }
                self.poll_rest(context, &mut deaf)
            });
            if timeout(DRAIN, progress).await != Ok(true) {
                return;
            }
        }
    }

    /// Writes what is still on its way to the server, and the end.
    fn poll_farewell(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if ready!(self.up.poll_flush(&mut self.server, context)).is_ok() {
            let farewell = if self.conversation.is_terminated() { TERMINATE } else { &[] };
            // A server that has no room for so little does not listen; the end of the connection tells it too.
            let said = self.server.socket().send(farewell).and_then(|_| self.server.socket().finish());
            if let Err(error) = said {
                tracing::debug!(%error, "could not tell the server that its client has left");
            }
        }
        Poll::Ready(())
    }

    /// Passes on one chunk, or throws it away if the client takes none any more (`deaf`); false at the end.
    fn poll_rest(&mut self, context: &mut Context<'_>, deaf: &mut bool) -> Poll<bool> {
        let Self { client, server, conversation, down, .. } = self;
        if !*deaf && ready!(down.poll_flush(client, context)).is_err() {
            *deaf = true;
        }
        BUFFER.with_borrow_mut(|buffer| {
            let count = ready!(server.poll_receive(context, buffer)).unwrap_or(0);
            conversation.server_says(&buffer[..count]);
            *deaf = *deaf || down.send(&buffer[..count], client, context).is_err();
            Poll::Ready(count > 0)
        })
    }
}

/// The statement in a frame of the client's, as far as it is there.
fn statement(frame: FramePrefix<'_>) -> Option<&[u8]> {
    match frame.tag {
        b'Q' => Some(frame.body),
        b'P' => Some(split_zero(frame.body).1),
        _ => None,
    }
}

/// Whether it is CREATE, ALTER or DROP DATABASE, which the server may refuse because of other sessions. It takes these only
/// as a statement by itself.
fn is_about_a_database(sql: &[u8]) -> bool {
    let mut lexer = SqlLexer::new(sql, true);
    let verbs = [&b"drop"[..], b"create", b"alter"];
    lexer.token().is_some_and(|verb| verbs.iter().any(|word| verb.is_word(word)))
        && lexer.token().is_some_and(|object| object.is_word(b"database"))
}

#[cfg(test)]
mod tests;
