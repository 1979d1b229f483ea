//! Makes an open session obey the faults of its lease, by putting a [`FaultDrive`] between the client and the session.
//!
//! The session gets one end of a socket pair in place of its client's connection, and doesn't notice the difference.

use std::os::unix::net::UnixStream;

use tracing::{Instrument, Span};

use super::drive::FaultDrive;
use super::hold::{Hold, hold};
use super::order::FaultOrder;
use super::switched_session::{ClientSide, SessionFacts};
use crate::notices::Notices;
use crate::state::ConnectionHandle;
use crate::stream::{Socket, Stream};

/// Makes a session obey `order`. `exchange` replaces the session's client connection with its argument, and returns the
/// client's side. If the system has no sockets left, the session continues without faults.
///
/// The session must remain part of its lease while the returned hold exists.
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
