//! Makes an open session obey the faults of its lease: puts a [`FaultDrive`] between the client and the session.
//!
//! The session keeps one end of a pair of sockets in place of its client's connection, and does not see a difference.

use std::os::unix::net::UnixStream;

use tracing::{Instrument, Span};

use super::drive::FaultDrive;
use super::hold::{Hold, hold};
use super::order::FaultOrder;
use super::scope::FaultScope;
use crate::notices::Notices;
use crate::state::ConnectionHandle;
use crate::statement_tap::Tap;
use crate::stream::{Socket, Stream};

/// Facts about a session that the gateway knows since its begin.
#[derive(Debug, Clone)]
pub(crate) struct SessionFacts {
    pub(crate) scope: FaultScope,
    /// Process id of the backend, as the client knows it.
    pub(crate) process: u32,
    /// Whether `standard_conforming_strings` was on at the begin.
    pub(crate) standard_strings: bool,
}

impl SessionFacts {
    /// Returns the facts of a session. `greeting` is the server's startup response.
    pub(crate) fn new(scope: FaultScope, greeting: &[u8]) -> Self {
        let on = b"standard_conforming_strings\0on\0";
        let process = pgwire::cancel_key(greeting).and_then(|place| greeting[place].first_chunk().copied());
        Self {
            scope,
            process: process.map_or(0, u32::from_be_bytes),
            standard_strings: greeting.windows(on.len()).any(|window| window == on),
        }
    }

    /// Returns the session's order to obey faults. Without one, the session itself is about to request a fault, so this
    /// orders all sessions of the lease.
    pub(crate) fn take_order(&self, notices: &mut Notices) -> FaultOrder {
        if let Some(order) = notices.take_order() {
            return order;
        }
        let faults = self.scope.order();
        notices.take_order().unwrap_or_else(|| FaultOrder::new(faults, None))
    }
}

/// The client's side of a session whose server has answered all messages.
pub(crate) struct ClientSide {
    pub(crate) client: Stream,
    /// Bytes that the client must receive first. The tap has seen them.
    pub(crate) unsent: Vec<u8>,
    pub(crate) tap: Option<Box<Tap>>,
    /// Number of the client's unread bytes that the tap has seen.
    pub(crate) tapped: usize,
    /// Transaction status in the last ReadyForQuery.
    pub(crate) status: u8,
    /// Whether the client has sent no message yet.
    pub(crate) is_new: bool,
}

/// Makes a session obey `order`. `exchange` gives the session another connection in place of its client's, and returns
/// the client's. If the system has no sockets left, the session goes on without faults.
///
/// The session must stay part of its lease for as long as the returned hold lasts.
pub(crate) fn switch(
    order: &FaultOrder,
    facts: &SessionFacts,
    (notices, presence): (&Notices, &ConnectionHandle),
    exchange: impl FnOnce(Stream) -> ClientSide,
) -> Option<Hold> {
    let ends = UnixStream::pair().and_then(|(near, far)| {
        let stream = |end| Stream::new(Socket::unix(end)?, Vec::new());
        Ok((stream(near)?, stream(far)?))
    });
    match ends {
        Ok((near, far)) => {
            let (sender, hold) = hold();
            let drive = FaultDrive::new(exchange(near), far, order.clone(), facts);
            tokio::spawn(drive.run(notices.clone(), presence.clone(), sender).instrument(Span::current()));
            Some(hold)
        }
        Err(error) => {
            tracing::warn!(%error, "a session ignores the faults of its lease");
            order.done();
            None
        }
    }
}
