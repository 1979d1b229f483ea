//! Describes an open session that starts to obey the faults of its lease.

use super::order::FaultOrder;
use super::scope::FaultScope;
use crate::notices::Notices;
use crate::statement_tap::Tap;
use crate::stream::Stream;

/// Facts that the gateway knows about a session from its start.
#[derive(Debug, Clone)]
pub(crate) struct SessionFacts {
    pub(crate) scope: FaultScope,
    /// The server's startup response.
    pub(crate) startup_response: Vec<u8>,
}

impl SessionFacts {
    /// Returns the backend's process ID as the server reported it to the client, or 0 if it reported none.
    pub(crate) fn process(&self) -> u32 {
        let key = pgwire::cancel_key(&self.startup_response);
        let process = key.and_then(|place| self.startup_response[place].first_chunk().copied());
        process.map_or(0, u32::from_be_bytes)
    }

    /// Returns true if `standard_conforming_strings` was on when the session began.
    pub(super) fn standard_strings(&self) -> bool {
        let on = b"standard_conforming_strings\0on\0";
        self.startup_response.windows(on.len()).any(|window| window == on)
    }

    /// Takes the session's order to obey faults. A session without an order is about to request a fault itself, so this
    /// orders all sessions of the lease to obey.
    pub(crate) fn take_order(&self, notices: &mut Notices) -> FaultOrder {
        if let Some(order) = notices.take_order() {
            return order;
        }
        let faults = self.scope.order();
        notices.take_order().unwrap_or_else(|| FaultOrder::new(faults, None))
    }
}

/// The client's side of a session. The server has responded to all messages of the session.
pub(crate) struct ClientSide {
    pub(crate) client: Stream,
    /// Bytes that the client must receive first. The tap has already seen them.
    pub(crate) unsent: Vec<u8>,
    pub(crate) tap: Option<Box<Tap>>,
    /// Number of unread client bytes that the tap has already seen.
    pub(crate) tapped: usize,
    /// Transaction status from the last ReadyForQuery.
    pub(crate) status: u8,
    /// Whether a transaction block is open and the server has responded to a request in it.
    pub(crate) has_run_in_block: bool,
    /// Whether the client has sent no message yet.
    pub(crate) is_new: bool,
    /// Prepared statements that the gateway has replaced on the server: their names, and the texts that the client
    /// sent.
    pub(crate) replaced: Vec<(Vec<u8>, Box<[u8]>)>,
}
