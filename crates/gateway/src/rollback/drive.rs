//! Feeds a machine from two sockets.
//!
//! A message is kept until it is whole only if the machine has to see it from end to end; all others pass in pieces.
//! Nothing more is read from an end while what is on its way to the other exceeds a bound.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::timeout;

use super::gate::Gate;
use super::session::RollbackSession;
use super::task::{Disposition, Turn};
use crate::buffer::{BUFFER, CHUNK};
use crate::stream::Stream;
use crate::tap::Tap;
use lease::LeaseTransaction;

use pgwire::{ErrorResponse, Frame, HEADER, MalformedFrame, frames, is_frontend_tag, split_zero};

/// Bytes on their way to one end beyond which nothing is read from the other.
const BOUND: usize = 256 << 10;
/// How long the server may take to end what a client that has gone was about.
const LAST: Duration = Duration::from_secs(5);

/// How a session ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    Client,
    Server,
    /// The session is to be closed, and the client does not read what it was told before.
    Closed,
    /// The transaction is not what it should be any more.
    Broken(ErrorResponse),
}

/// What has come from one end.
#[derive(Debug, Default)]
struct FrameBuffer {
    bytes: Vec<u8>,
    /// Bytes that have been dealt with.
    start: usize,
    /// What is left of a message that passes in pieces, and whether it passes at all.
    rest: (usize, bool),
    /// Bytes that a message needs to be whole.
    wanted: usize,
}

impl FrameBuffer {
    fn left(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Passes on what has come of a message in pieces; whether there was any.
    fn pass(&mut self, to: &mut Vec<u8>) -> bool {
        let count = self.rest.0.min(self.left().len());
        if self.rest.1 {
            to.extend_from_slice(&self.left()[..count]);
        }
        self.start += count;
        self.rest.0 -= count;
        count > 0
    }

    /// Tag and length of the next frame, header included.
    fn head(&self) -> Result<Option<(u8, usize)>, MalformedFrame> {
        Frame::header(self.left())
    }

    /// Takes a message out, if it is whole.
    fn take(&mut self, length: usize) -> Option<&[u8]> {
        if self.left().len() < length {
            self.wanted = length;
            return None;
        }
        self.wanted = 0;
        self.start += length;
        Some(&self.bytes[self.start - length..self.start])
    }

    fn has_room(&self) -> bool {
        self.left().len() < CHUNK.max(self.wanted)
    }

    fn add(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.start);
        self.start = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// An idle session holds no buffer.
    fn shrink(&mut self) {
        if self.left().is_empty() {
            (self.bytes, self.start) = (Vec::new(), 0);
        }
    }
}

/// A client, a server, and the machine between them.
#[derive(Debug)]
pub(super) struct Drive {
    pub(super) client: Stream,
    pub(super) server: Stream,
    session: RollbackSession,
    gate: Arc<Gate>,
    /// The statements that run are wanted: as the client sees it, without what the machine says itself.
    tap: Option<Box<Tap>>,
    /// Bytes for the client that are not sent and that the tap has heard.
    tapped: usize,
    turn: Turn,
    up: FrameBuffer,
    down: FrameBuffer,
    /// The client will send nothing more.
    ended: bool,
    /// What the client is told is not observed.
    deaf: bool,
    /// The session is to be closed: a client that does not read is not waited for.
    hurried: bool,
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
        Self {
            client,
            server,
            session,
            gate,
            tap,
            tapped: 0,
            turn: Turn::Nobody,
            up,
            down,
            ended: false,
            deaf: false,
            hurried: false,
        }
    }

    /// The same as [`Self::run`] for as long as the client takes all that it is told: the session is to be closed.
    pub(super) async fn hurry(&mut self) -> End {
        self.hurried = true;
        self.run().await
    }

    /// Goes on until one of the ends ends. May be dropped between two polls.
    pub(super) async fn run(&mut self) -> End {
        loop {
            let turn = self.session.turn();
            if turn != self.turn {
                self.gate.set(turn).await;
                self.turn = turn;
            }
            let is_held_up = |drive: &Self| drive.hurried && !drive.session.to_client.is_empty();
            let end = poll_fn(|context| match self.poll(context) {
                Poll::Pending if is_held_up(self) => Poll::Ready(Some(End::Closed)),
                other => other,
            });
            if let Some(end) = end.await {
                return end;
            }
        }
    }

    /// Has the server end what a client that has gone was about. Returns the transaction, if it can be gone on with.
    pub(super) async fn wind_down(
        &mut self,
        interrupt: impl Future<Output = ()>,
    ) -> Option<LeaseTransaction> {
        if self.up.rest.0 > 0 || self.session.broken.is_some() {
            return None;
        }
        self.gate.set(Turn::Nobody).await;
        (self.ended, self.deaf) = (true, true);
        self.up = FrameBuffer::default();
        self.session.hang_up();
        if !self.session.is_quiet() || !self.session.to_server.is_empty() {
            if self.turn == Turn::Client {
                interrupt.await;
            }
            let quiet = poll_fn(|context| self.poll_until_quiet(context));
            timeout(LAST, quiet).await.ok().filter(|quiet| *quiet)?;
        }
        self.down.left().is_empty().then(|| std::mem::take(&mut self.session.transaction))
    }

    /// The client, and what it has not been told yet; nothing may be added to it in the middle of a message (`None`).
    pub(super) fn farewell(self) -> (Stream, Option<Vec<u8>>) {
        let unsaid = self.session.to_client;
        (self.client, (self.down.rest.0 == 0).then_some(unsaid))
    }

    fn poll_until_quiet(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        loop {
            if self.session.is_quiet() && self.session.to_server.is_empty() {
                return Poll::Ready(true);
            }
            // No client has a key any more.
            self.turn = self.session.turn();
            match self.poll(context) {
                Poll::Ready(None) => {}
                Poll::Ready(Some(_)) => return Poll::Ready(self.session.is_quiet()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Reads, decides and writes until there is nothing to do, or an end has ended, or the turn has changed (`None`).
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<End>> {
        loop {
            if let Some(why) = &self.session.broken {
                return Poll::Ready(Some(End::Broken(why.clone())));
            }
            if flush(&mut self.session.to_server, &mut self.server, context).is_err() {
                // The server is about to say why.
                self.session.to_server.clear();
            }
            if self.deaf {
                self.session.to_client.clear();
            } else {
                // Before the client can ask for it.
                if let Some(tap) = &mut self.tap {
                    tap.server_says(&self.session.to_client[self.tapped..]);
                }
                let sent = flush(&mut self.session.to_client, &mut self.client, context);
                self.tapped = self.session.to_client.len();
                if sent.is_err() {
                    return Poll::Ready(Some(End::Client));
                }
            }
            let mut busy = self.take_from_server();
            if !self.ended && self.take_from_client() {
                busy = true;
            }
            if self.session.turn() != self.turn {
                return Poll::Ready(None);
            }
            if busy {
                continue;
            }
            if self.is_left() {
                return Poll::Ready(Some(End::Client));
            }
            match (self.read_server(context), self.read_client(context)) {
                (Poll::Ready(false), _) => {
                    // Nothing is on its way to it any more; its last words may have waited for that.
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

    /// Whether the client has gone. One that has said goodbye wanted the rest to be done.
    fn is_left(&self) -> bool {
        let waits = !self.session.is_quiet() && frames(self.up.left()).any(|frame| frame.tag == b'X');
        self.ended && !self.deaf && !waits
    }

    fn read_server(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        if self.session.to_client.len() > BOUND || !self.down.has_room() {
            return Poll::Pending;
        }
        read(&mut self.server, &mut self.down, None, context)
    }

    fn read_client(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        if self.ended || self.session.to_server.len() > BOUND || !self.up.has_room() {
            return Poll::Pending;
        }
        let read = read(&mut self.client, &mut self.up, self.tap.as_deref_mut(), context);
        self.ended |= read == Poll::Ready(false);
        read
    }

    /// Whether anything was done.
    fn take_from_server(&mut self) -> bool {
        let Self { session, up, down, turn, .. } = self;
        let mut busy = false;
        while session.to_client.len() <= BOUND && session.broken.is_none() {
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
                // What follows an error must not get into a message that is on its way to the server, which reads its rest
                // in any case, and says no more before.
                Disposition::Whole if tag == b'E' && up.rest.0 > 0 && up.rest.1 => break,
                Disposition::Whole => {
                    let Some(message) = down.take(length) else { break };
                    session.server(message);
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

    /// Whether anything was done.
    fn take_from_client(&mut self) -> bool {
        let Self { session, up, turn, .. } = self;
        let mut busy = false;
        while session.to_server.len() <= BOUND && session.broken.is_none() {
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
                // To a server a client that says this has gone, unless the tag is wrong already.
                Err(MalformedFrame) => {
                    (up.left().first().copied().filter(|tag| !is_frontend_tag(*tag)).unwrap_or(b'X'), 0)
                }
            };
            let disposition = session.client_head(tag);
            match disposition {
                Disposition::Wait => break,
                // Nothing comes after it.
                _ if tag == b'X' => {
                    self.ended = true;
                    *up = FrameBuffer::default();
                    return true;
                }
                Disposition::Whole => {
                    let Some(message) = up.take(length) else { break };
                    session.client(tag, &message[HEADER..]);
                }
                Disposition::Names => {
                    let left = up.left();
                    let body = &left[HEADER..left.len().min(length)];
                    let names = split_zero(body).0.len() + split_zero(split_zero(body).1).0.len() + 2;
                    if names > body.len() && body.len() + HEADER < length {
                        up.wanted = left.len() + 1;
                        break;
                    }
                    session.client_names(body);
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

/// Writes what there is room for.
fn flush(bytes: &mut Vec<u8>, to: &mut Stream, context: &mut Context<'_>) -> std::io::Result<()> {
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

/// Reads once; false at the end.
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
                tap.client_says(&buffer[..count]);
            }
            to.add(&buffer[..count]);
            count > 0
        })
    })
}

#[cfg(test)]
mod tests;
