//! Makes an open session obey the faults of its lease: puts a [`FaultDrive`] between the client and the session.
//!
//! The session keeps one end of a pair of sockets in place of its client's connection, and does not see a difference.

use std::os::unix::net::UnixStream;

use tracing::{Instrument, Span};

use super::drive::FaultDrive;
use super::hold::{Hold, hold};
use super::order::FaultOrder;
use super::switched_session::{ClientSide, SessionFacts};
use crate::notices::Notices;
use crate::state::ConnectionHandle;
use crate::stream::{Socket, Stream};

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
