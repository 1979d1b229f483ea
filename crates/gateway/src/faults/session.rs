//! Decides what happens to each client and server message while the lease has faults. Does no I/O.
//!
//! The session lets the server work on one client statement at a time. The server runs statements one by one anyway, so
//! this costs no concurrency, and the session always knows the transaction state when it asks [`LeaseFaults`] for a
//! fault. In the extended protocol, it therefore sends a Flush after each Execute.
//!
//! To make a statement fail, the session sends the server a statement that always fails, so that the server itself
//! fails the client's transaction. The session then rewrites the error as PostgreSQL would report it. See [`failure`].
//!
//! [`query`] handles the simple protocol, [`execute`] the extended protocol, and [`answers`] the server's messages. All
//! three ask [`moments`] for faults.

mod answers;
mod execute;
mod failure;
mod messages;
mod moments;
mod query;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub(super) use self::messages::{SYNC, close_own_execution, own_execution};

use self::failure::Failure;
use self::messages::{FLUSH, parts};
use self::moments::{Strikes, TransactionState, is_slow};
use super::errors::fatal;
use super::fault::{Fault, FaultEffect, FaultError};
use super::lease_faults::LeaseFaults;
use super::statement::Statement;

/// Number of bytes that a server buffers before it sends them without a Flush. Source: `PQ_SEND_BUFFER_SIZE`.
const SERVER_BUFFER: usize = 8 << 10;
/// The SQLSTATE that sessions end with at a failover.
const FAILOVER: &str = "57P01";

/// State of a session when it starts to pass through [`FaultSession`]. The server has responded to all its messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SwitchedState {
    /// Transaction status from the server's last ReadyForQuery: I, T or E.
    pub(crate) status: u8,
    /// The server's major version.
    pub(crate) major: u32,
    /// Process ID of the backend, as `pg_backend_pid()` returns it.
    pub(crate) process: u32,
    /// Whether `standard_conforming_strings` is on.
    pub(crate) standard_strings: bool,
}

/// The side that sent a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// Something that happens to the connection after all earlier bytes have been written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Interruption {
    /// No bytes move for this time, in either direction.
    Delay(Duration),
    /// From now on, bytes move at this rate, in bytes per second for each direction.
    Bandwidth(u64),
    /// The client receives a TCP reset. The server sees a client that has disconnected.
    Reset,
    /// The connection stays open, but the client receives nothing. The server sees a client that has disconnected.
    Silence,
    /// The session ends, and the last bytes for the client contain the reason. The effect is a FATAL error or a
    /// failover, which also affects other sessions.
    Fatal(FaultEffect),
    /// The client executes a statement that requests this fault. The caller adds or refuses the fault, then calls
    /// [`FaultSession::execute_request`].
    Request(Result<Fault, FaultError>),
}

/// Bytes and interruptions that follow an interruption, in order.
#[derive(Debug)]
enum Output {
    ToServer(Vec<u8>),
    ToClient(Vec<u8>),
    Interruption(Interruption),
}

/// The work that the server is doing.
#[derive(Debug)]
enum Work {
    /// The server is idle, so the session can read the client's next message.
    None,
    /// The server is processing the messages before this Execute, Query or function call, which the session still
    /// holds.
    Before(Vec<u8>),
    /// The caller is adding the fault that this Execute requests.
    Request(Vec<u8>, Statement),
    /// The server is processing the messages before the client's Flush.
    Flush,
    /// The server is running statements.
    Run(Run),
    /// The server is processing a Sync.
    Sync,
}

/// Statements that the server is running: those of a Query until its ReadyForQuery, or the statement of an Execute
/// until its response.
#[derive(Debug)]
struct Run {
    statements: Vec<Statement>,
    strikes: Vec<Strikes>,
    /// Position of the running statement.
    next: usize,
    is_query: bool,
    failure: Option<Failure>,
    /// Whether the running statement failed before the server ran it.
    is_invalid: bool,
}

/// How the connection ends: immediately, when the client's Sync arrives, or after the response to that Sync.
#[derive(Debug)]
struct Cut {
    effect: FaultEffect,
    /// Whether the connection ends after the server's response to the client's Sync, instead of at the Sync.
    after_answer: bool,
}

/// A prepared statement.
#[derive(Debug, Clone)]
enum Prepared {
    /// A statement that the client prepared before the session obeyed faults, so its text is unknown.
    Unknown,
    /// An empty text, or only comments.
    Empty,
    /// A statement with its text.
    Known(Statement),
}

/// A portal in the extended protocol.
#[derive(Debug)]
struct Portal {
    statement: Prepared,
    /// Whether the client has executed the portal. Fetching further rows doesn't count as another statement.
    has_run: bool,
}

/// One client's session in a lease with faults.
///
/// The caller splits both streams into messages and passes them in order. After each call, it calls
/// [`Self::interruption`] until that returns `None`. Before each interruption takes effect, the caller writes
/// `to_server` and `to_client`.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own, and most may hold together")]
pub(crate) struct FaultSession {
    /// Bytes that the caller must write to the server and then remove.
    pub(crate) to_server: Vec<u8>,
    /// Bytes that the caller must write to the client and then remove.
    pub(crate) to_client: Vec<u8>,
    faults: Arc<LeaseFaults>,
    major: u32,
    process: u32,
    /// Whether `standard_conforming_strings` is on.
    pub(super) standard_strings: bool,
    state: TransactionState,
    /// Prepared statements by name.
    prepared: HashMap<Vec<u8>, Prepared>,
    /// Parse and Close messages that the server hasn't confirmed, in order. Each entry contains the statement's name
    /// and its previous statement, or is `None` if a Close is for a portal. [`Self::restore_prepared`] reverts the
    /// changes that the server refuses.
    unconfirmed: VecDeque<Option<(Vec<u8>, Option<Prepared>)>>,
    portals: HashMap<Vec<u8>, Portal>,
    work: Work,
    /// Number of Parse, Bind, Describe and Close messages without a response so far.
    unanswered: usize,
    /// Whether the server skips client messages until the next Sync.
    is_skipping: bool,
    /// Whether the server is reading COPY data.
    is_copying: bool,
    /// Whether the rest of the client's last message is forwarded to the server.
    passes_client: bool,
    /// Whether the rest of the server's last message is forwarded to the client.
    passes_server: bool,
    queue: VecDeque<Output>,
    /// Whether the client has sent extended-protocol messages since its last Sync or Flush.
    is_grouped: bool,
    /// Responses that the server would send only at the client's next Sync or Flush. If the connection is lost before,
    /// the client doesn't receive them.
    unflushed: Vec<u8>,
    cut: Option<Cut>,
    /// Whether the connection has ended.
    has_ended: bool,
}

impl FaultSession {
    pub(crate) fn new(faults: Arc<LeaseFaults>, start: SwitchedState) -> Self {
        let SwitchedState { status, major, process, standard_strings } = start;
        Self {
            to_server: Vec::new(),
            to_client: Vec::new(),
            faults,
            major,
            process,
            standard_strings,
            state: TransactionState { status, has_work: false },
            prepared: HashMap::new(),
            unconfirmed: VecDeque::new(),
            portals: HashMap::new(),
            work: Work::None,
            unanswered: 0,
            is_skipping: false,
            is_copying: false,
            passes_client: true,
            passes_server: true,
            queue: VecDeque::new(),
            is_grouped: false,
            unflushed: Vec::new(),
            cut: None,
            has_ended: false,
        }
    }

    /// Returns the minimum number of body bytes that [`Self::observe_client`] and [`Self::observe_server`] need. A
    /// shorter body must be complete.
    pub(crate) fn wanted(side: Side, tag: u8) -> usize {
        match (side, tag) {
            (Side::Client, b'd') | (Side::Server, b'd' | b'D') => 0,
            // The names of the portal and the statement fit into this length.
            (Side::Client, b'B') => 512,
            _ => usize::MAX,
        }
    }

    /// Returns true if the session can process the client's next message. Otherwise, the caller must keep the message.
    pub(crate) fn accepts_client(&self) -> bool {
        self.queue.is_empty() && (self.cut.is_some() || self.is_copying || matches!(self.work, Work::None))
    }

    /// Processes a client message: its header, and at least [`Self::wanted`] bytes of its body.
    pub(crate) fn observe_client(&mut self, message: &[u8]) {
        self.passes_client = false;
        let tag = parts(message).tag;
        match tag {
            _ if self.has_ended => {}
            _ if self.cut.is_some() => self.observe_client_before_cut(message),
            b'd' | b'c' | b'f' => self.copy_data(message),
            // During a COPY, the server ignores these messages.
            b'H' | b'S' if self.is_copying => self.pass_to_server(message),
            _ if self.is_copying => {
                // Any other message makes the server end the COPY with an error.
                self.is_copying = false;
                self.pass_to_server(message);
            }
            b'P' | b'B' | b'D' | b'C' | b'E' => {
                self.is_grouped = true;
                match tag {
                    _ if self.is_skipping => {}
                    b'E' => self.execute(message),
                    _ => self.prepare(message),
                }
            }
            _ => {
                self.flush_answers();
                self.is_grouped = false;
                self.end_group(message);
            }
        }
    }

    /// Processes a message that makes the server send all pending responses.
    fn end_group(&mut self, message: &[u8]) {
        match parts(message).tag {
            b'S' => {
                self.is_skipping = false;
                self.work = Work::Sync;
                self.pass_to_server(message);
            }
            b'Q' | b'F' | b'H' if self.is_skipping => {}
            b'Q' | b'F' if self.unanswered > 0 => self.hold(message),
            b'Q' => self.query(message),
            b'F' => self.function_call(message),
            b'H' => {
                if self.unanswered > 0 {
                    self.work = Work::Flush;
                }
                self.pass_to_server(message);
            }
            _ => self.pass_to_server(message),
        }
    }

    /// Processes COPY data, or the end of the data.
    fn copy_data(&mut self, message: &[u8]) {
        let is_last = parts(message).tag != b'd';
        // Outside a COPY, the data are left over from a failed COPY, and the server ignores them.
        if self.is_copying {
            self.is_copying = !is_last;
            self.pass_to_server(message);
            // In the extended protocol, the client's Sync must wait for the response to the COPY.
            if is_last && matches!(&self.work, Work::Run(run) if !run.is_query) {
                self.send_to_server(FLUSH.to_vec());
            }
        }
    }

    /// Forwards the messages that the server still reads before the connection ends.
    fn observe_client_before_cut(&mut self, message: &[u8]) {
        self.pass_to_server(message);
        let tag = parts(message).tag;
        let Some(Cut { after_answer, .. }) = &self.cut else { return };
        // A client that sends a Flush waits for a response before it sends a Sync, so end the connection now.
        if matches!(tag, b'H' | b'X') || matches!(tag, b'S' | b'Q' | b'F') && !after_answer {
            self.cut_now();
        }
    }

    /// Processes further bytes of the client's last message.
    pub(crate) fn client_continues(&mut self, bytes: &[u8]) {
        if self.passes_client {
            self.emit(Output::ToServer(bytes.to_vec()));
        }
    }

    /// Forwards all further client bytes, because the client's next message has an invalid length.
    pub(crate) fn pass_malformed(&mut self) {
        self.passes_client = true;
    }

    /// Processes further bytes of the server's last message.
    pub(crate) fn server_continues(&mut self, bytes: &[u8]) {
        if self.passes_server {
            self.send_to_client(bytes);
        }
    }

    /// Returns the next interruption. The next call ends that interruption, and adds the bytes that follow it to
    /// `to_server` and `to_client`.
    pub(crate) fn interruption(&mut self) -> Option<Interruption> {
        while let Some(output) = self.queue.pop_front() {
            match output {
                Output::Interruption(interruption) => return Some(interruption),
                Output::ToServer(bytes) => self.to_server.extend(bytes),
                Output::ToClient(bytes) => self.to_client.extend(bytes),
            }
        }
        None
    }

    /// Prepares for the end of the session: discards the bytes for the server, but keeps those for the client.
    pub(super) fn close(&mut self) {
        self.queue.retain(|output| !matches!(output, Output::ToServer(_)));
        self.passes_client = false;
        self.cut = None;
    }

    /// Appends output to all earlier output.
    fn emit(&mut self, output: Output) {
        match output {
            Output::ToServer(bytes) if self.queue.is_empty() => self.to_server.extend(bytes),
            Output::ToClient(bytes) if self.queue.is_empty() => self.to_client.extend(bytes),
            output => self.queue.push_back(output),
        }
    }

    fn send_to_server(&mut self, bytes: Vec<u8>) {
        self.emit(Output::ToServer(bytes));
    }

    /// Forwards a client message. If the caller has only its beginning, the rest follows.
    fn pass_to_server(&mut self, message: &[u8]) {
        self.passes_client = true;
        self.emit(Output::ToServer(message.to_vec()));
    }

    /// Forwards a server message. If the caller has only its beginning, the rest follows.
    fn pass_to_client(&mut self, message: &[u8]) {
        self.passes_server = true;
        self.send_to_client(message);
        // The server sends these messages immediately, without waiting for a Flush.
        if matches!(parts(message).tag, b'E' | b'N' | b'G' | b'Z') {
            self.flush_answers();
        }
    }

    fn send_to_client(&mut self, bytes: &[u8]) {
        if self.is_grouped {
            self.unflushed.extend_from_slice(bytes);
            if self.unflushed.len() > SERVER_BUFFER {
                self.flush_answers();
            }
        } else {
            self.emit(Output::ToClient(bytes.to_vec()));
        }
    }

    /// Sends the client all responses so far.
    fn flush_answers(&mut self) {
        if !self.unflushed.is_empty() {
            let bytes = std::mem::take(&mut self.unflushed);
            self.emit(Output::ToClient(bytes));
        }
    }

    /// Starts a delay or a bandwidth limit. Any other effect ends the connection: immediately (`at_once`), when the
    /// client's Sync arrives, or after the response to that Sync. A client usually sends its Sync together with the
    /// Execute.
    fn interrupt(&mut self, effect: FaultEffect, at_once: bool, after_answer: bool) {
        match effect {
            FaultEffect::Delay(time) => self.emit(Output::Interruption(Interruption::Delay(time))),
            FaultEffect::Bandwidth(rate) => self.emit(Output::Interruption(Interruption::Bandwidth(rate))),
            effect => {
                self.cut = Some(Cut { effect, after_answer });
                if at_once {
                    self.cut_now();
                }
            }
        }
    }

    /// Ends the connection now.
    fn cut_now(&mut self) {
        let Some(Cut { effect, .. }) = self.cut.take() else { return };
        debug_assert!(!is_slow(&effect));
        let interruption = match effect {
            FaultEffect::Reset => Interruption::Reset,
            FaultEffect::Silence => Interruption::Silence,
            effect => {
                let sqlstate = match &effect {
                    FaultEffect::Error { sqlstate, .. } => sqlstate,
                    _ => FAILOVER,
                };
                let message = fatal(sqlstate, self.major);
                self.flush_answers();
                self.emit(Output::ToClient(message));
                Interruption::Fatal(effect)
            }
        };
        self.emit(Output::Interruption(interruption));
        self.has_ended = true;
        if let Work::Run(Run { strikes, next: next @ 1.., .. }) =
            std::mem::replace(&mut self.work, Work::None)
        {
            // The client doesn't learn of the statements after the one that has run, so take back their strikes.
            self.take_back(strikes.get(next..).unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests;
