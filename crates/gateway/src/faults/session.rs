//! Decides what happens to each message of a client and its server while the lease has faults, without input or output.
//!
//! The session lets the server work on one statement of the client at a time, as the server does anyway. It therefore
//! knows the state of the transaction whenever it asks [`LeaseFaults`] for a fault.

use std::sync::Arc;
use std::time::Duration;

use super::fault::FaultEffect;
use super::lease_faults::LeaseFaults;

/// State of a session that passes through [`FaultSession`] from now on. The server has answered all its messages.
#[derive(Debug, Clone)]
pub(crate) struct SessionStart {
    /// Transaction status in the server's last ReadyForQuery: I, T or E.
    pub(crate) status: u8,
    /// Names and texts of the prepared statements.
    pub(crate) prepared: Vec<(String, String)>,
    /// The server's major version.
    pub(crate) major: u32,
    /// Process id of the backend, as `pg_backend_pid()` returns it.
    pub(crate) process: u32,
    /// Whether `standard_conforming_strings` is on.
    pub(crate) standard_strings: bool,
}

/// Side from which a message comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// Something that happens to the connection, after all bytes before it have been written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Interruption {
    /// No byte moves for this time, in either direction.
    Delay(Duration),
    /// From now on, bytes move at this rate, in bytes per second and direction.
    Bandwidth(u64),
    /// The client gets a TCP reset. The server sees a client that has disconnected.
    Reset,
    /// The connection stays open, and the client reads nothing from it. The server sees a client that has disconnected.
    Silence,
    /// The session ends, and the last bytes for the client have the reason. The effect is a FATAL error or a failover,
    /// with its consequences for other sessions.
    Fatal(FaultEffect),
}

/// One client's session in a lease with faults.
///
/// The caller splits both streams into messages and feeds them in order. After each call it first calls
/// [`Self::interruption`] until this returns `None`, and writes `to_server` and `to_client` before each interruption.
#[derive(Debug)]
pub(crate) struct FaultSession {
    /// Bytes that the caller must write to the server. The caller removes them.
    pub(crate) to_server: Vec<u8>,
    /// Bytes that the caller must write to the client. The caller removes them.
    pub(crate) to_client: Vec<u8>,
    faults: Arc<LeaseFaults>,
}

impl FaultSession {
    pub(crate) fn new(faults: Arc<LeaseFaults>, _start: SessionStart) -> Self {
        Self { to_server: Vec::new(), to_client: Vec::new(), faults }
    }

    /// Returns how many bytes of a message's body [`Self::client_says`] or [`Self::server_says`] needs at least. A shorter
    /// body must be complete.
    pub(crate) fn wanted(side: Side, tag: u8) -> usize {
        match (side, tag) {
            (Side::Client, b'd') | (Side::Server, b'd' | b'D') => 0,
            // The names of the portal and the statement.
            (Side::Client, b'B') => 512,
            _ => usize::MAX,
        }
    }

    /// Returns true if the session can read the client's next message. Until then, the caller must keep it.
    pub(crate) fn accepts_client(&self) -> bool {
        true
    }

    /// Processes a message of the client: its header, and at least [`Self::wanted`] bytes of its body.
    pub(crate) fn client_says(&mut self, message: &[u8]) {
        let _ = &self.faults;
        self.to_server.extend_from_slice(message);
    }

    /// Processes more bytes of the client's last message.
    pub(crate) fn client_continues(&mut self, bytes: &[u8]) {
        self.to_server.extend_from_slice(bytes);
    }

    /// Processes a message of the server: its header, and at least [`Self::wanted`] bytes of its body.
    pub(crate) fn server_says(&mut self, message: &[u8]) {
        self.to_client.extend_from_slice(message);
    }

    /// Processes more bytes of the server's last message.
    pub(crate) fn server_continues(&mut self, bytes: &[u8]) {
        self.to_client.extend_from_slice(bytes);
    }

    /// Returns the next interruption. When the caller calls it again, the interruption is over, and the session adds the
    /// bytes after it to `to_server` and `to_client`.
    pub(crate) fn interruption(&mut self) -> Option<Interruption> {
        None
    }
}
