//! Decides what happens to each message of a client and its server while the lease has faults, without input or output.
//!
//! The session lets the server work on one statement of the client at a time, as the server does anyway. It therefore
//! knows the state of the transaction whenever it asks [`LeaseFaults`] for a fault. In the extended protocol, it sends a
//! Flush after each Execute for this purpose.
//!
//! The server itself fails the client's transaction: the session adds a statement that always fails, and words the error
//! as PostgreSQL would. See [`failure`].
//!
//! [`query`] has the simple protocol, [`execute`] the extended one, and [`answers`] the messages of the server. All three
//! ask [`moments`] for faults.

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

/// Size of the buffer that a server fills before it sends anything without a Flush. Source: `PQ_SEND_BUFFER_SIZE`.
const SERVER_BUFFER: usize = 8 << 10;
/// SQLSTATE with which sessions end at a failover.
const FAILOVER: &str = "57P01";

/// State of a session that passes through [`FaultSession`] from now on. The server has answered all its messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SwitchedState {
    /// Transaction status in the server's last ReadyForQuery: I, T or E.
    pub(crate) status: u8,
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
    /// The client executes a statement that requests this fault. The caller adds the fault, or refuses it, and calls
    /// [`FaultSession::execute_request`].
    Request(Result<Fault, FaultError>),
}

/// Bytes and interruptions after an interruption, in order.
#[derive(Debug)]
enum Output {
    ToServer(Vec<u8>),
    ToClient(Vec<u8>),
    Interruption(Interruption),
}

/// Work of the server.
#[derive(Debug)]
enum Work {
    /// The session can read the client's next message.
    None,
    /// The server answers the messages before this Execute, Query or function call of the client.
    Before(Vec<u8>),
    /// The caller adds the fault that this Execute of the client requests.
    Request(Vec<u8>, Statement),
    /// The server answers the messages before the client's Flush.
    Flush,
    /// The server runs statements.
    Run(Run),
    /// The server answers a Sync.
    Sync,
}

/// Statements that the server runs: those of a Query until its ReadyForQuery, or the one of an Execute until its answer.
#[derive(Debug)]
struct Run {
    statements: Vec<Statement>,
    strikes: Vec<Strikes>,
    /// Position of the running statement.
    next: usize,
    is_query: bool,
    failure: Option<Failure>,
    /// Whether the running statement has failed before the server ran it.
    is_invalid: bool,
}

/// The end of the connection: at once, or once the client's Sync has arrived or been answered.
#[derive(Debug)]
struct Cut {
    effect: FaultEffect,
    /// Whether the connection ends after the server's answer to the client's Sync, and not with the Sync.
    after_answer: bool,
}

/// A prepared statement.
#[derive(Debug, Clone)]
enum Prepared {
    /// A statement that the client prepared before the session obeyed faults.
    Unknown,
    /// An empty text, or one with comments alone.
    Empty,
    /// A statement with its text.
    Known(Statement),
}

/// A portal of the extended protocol.
#[derive(Debug)]
struct Portal {
    statement: Prepared,
    /// Whether the client has executed the portal. Further rows are no other statement.
    has_run: bool,
}

/// One client's session in a lease with faults.
///
/// The caller splits both streams into messages and feeds them in order. After each call it first calls
/// [`Self::interruption`] until this returns `None`, and writes `to_server` and `to_client` before each interruption.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own, and most may hold together")]
pub(crate) struct FaultSession {
    /// Bytes that the caller must write to the server. The caller removes them.
    pub(crate) to_server: Vec<u8>,
    /// Bytes that the caller must write to the client. The caller removes them.
    pub(crate) to_client: Vec<u8>,
    faults: Arc<LeaseFaults>,
    major: u32,
    process: u32,
    /// Whether `standard_conforming_strings` is on.
    pub(super) standard_strings: bool,
    state: TransactionState,
    /// The prepared statements, by name.
    prepared: HashMap<Vec<u8>, Prepared>,
    /// Queue of the Parse and Close messages that the server has not answered. Each has the statement's name and its former
    /// statement, or is `None` for a Close of a portal. [`Self::restore_prepared`] undoes the changes that the server refuses.
    unconfirmed: VecDeque<Option<(Vec<u8>, Option<Prepared>)>>,
    portals: HashMap<Vec<u8>, Portal>,
    work: Work,
    /// Number of Parse, Bind, Describe and Close messages that the server has not answered.
    unanswered: usize,
    /// Whether the server skips the client's messages up to the next Sync.
    is_skipping: bool,
    /// Whether the server reads the data of a COPY.
    is_copying: bool,
    /// Whether the rest of the client's last message goes to the server.
    passes_client: bool,
    /// Whether the rest of the server's last message goes to the client.
    passes_server: bool,
    queue: VecDeque<Output>,
    /// Whether the client has sent messages of the extended protocol since its last Sync or Flush.
    is_grouped: bool,
    /// Answers that the server would send with the client's next Sync or Flush only. A client whose connection is lost does
    /// not get them.
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

    /// Returns how many bytes of a message's body [`Self::observe_client`] or [`Self::observe_server`] needs at least. A shorter
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
        self.queue.is_empty() && (self.cut.is_some() || self.is_copying || matches!(self.work, Work::None))
    }

    /// Processes a message of the client: its header, and at least [`Self::wanted`] bytes of its body.
    pub(crate) fn observe_client(&mut self, message: &[u8]) {
        self.passes_client = false;
        let tag = parts(message).tag;
        match tag {
            _ if self.has_ended => {}
            _ if self.cut.is_some() => self.observe_client_before_cut(message),
            b'd' | b'c' | b'f' => self.copy_data(message),
            // The server ignores these messages during a COPY.
            b'H' | b'S' if self.is_copying => self.pass_to_server(message),
            _ if self.is_copying => {
                // The server ends the COPY with an error.
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

    /// Processes a message after which the server sends all its answers.
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

    /// Processes data of a COPY, or its end.
    fn copy_data(&mut self, message: &[u8]) {
        let is_last = parts(message).tag != b'd';
        // Otherwise, the data are the rest of a failed COPY, which the server ignores.
        if self.is_copying {
            self.is_copying = !is_last;
            self.pass_to_server(message);
            // In the extended protocol, the client's Sync has to wait for the answer.
            if is_last && matches!(&self.work, Work::Run(run) if !run.is_query) {
                self.send_to_server(FLUSH.to_vec());
            }
        }
    }

    /// Passes the messages on that the server reads before the connection ends.
    fn observe_client_before_cut(&mut self, message: &[u8]) {
        self.pass_to_server(message);
        let tag = parts(message).tag;
        let Some(Cut { after_answer, .. }) = &self.cut else { return };
        // A client that flushes waits for an answer before its Sync.
        if matches!(tag, b'H' | b'X') || matches!(tag, b'S' | b'Q' | b'F') && !after_answer {
            self.cut_now();
        }
    }

    /// Processes more bytes of the client's last message.
    pub(crate) fn client_continues(&mut self, bytes: &[u8]) {
        if self.passes_client {
            self.emit(Output::ToServer(bytes.to_vec()));
        }
    }

    /// Lets all further bytes of the client pass, because its next message has no valid length.
    pub(crate) fn pass_malformed(&mut self) {
        self.passes_client = true;
    }

    /// Processes more bytes of the server's last message.
    pub(crate) fn server_continues(&mut self, bytes: &[u8]) {
        if self.passes_server {
            self.send_to_client(bytes);
        }
    }

    /// Returns the next interruption. When the caller calls it again, the interruption is over, and the session adds the
    /// bytes after it to `to_server` and `to_client`.
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

    /// Prepares for the end of the session: discards the bytes for the server, and keeps those for the client.
    pub(super) fn close(&mut self) {
        self.queue.retain(|output| !matches!(output, Output::ToServer(_)));
        self.passes_client = false;
        self.cut = None;
    }

    /// Adds output behind all earlier output.
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

    /// Passes a client's message on, with its rest if the caller has only its beginning.
    fn pass_to_server(&mut self, message: &[u8]) {
        self.passes_client = true;
        self.emit(Output::ToServer(message.to_vec()));
    }

    /// Passes a server's message on, with its rest if the caller has only its beginning.
    fn pass_to_client(&mut self, message: &[u8]) {
        self.passes_server = true;
        self.send_to_client(message);
        // The server sends these at once.
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

    /// Sends the client all answers so far.
    fn flush_answers(&mut self) {
        if !self.unflushed.is_empty() {
            let bytes = std::mem::take(&mut self.unflushed);
            self.emit(Output::ToClient(bytes));
        }
    }

    /// Delays and limits act here. Any other effect ends the connection: at once, or once the client's Sync has arrived or
    /// been answered. A client usually sends its Sync along with the Execute.
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

    /// Ends the connection.
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
            // The client does not hear of the statements after the one that has run.
            self.take_back(strikes.get(next..).unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests;
