//! Repeats a transcript's requests in a session, and asks the laboratory's questions between them.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::time::{Duration, Instant};

use pgwire::{SessionTranscript, StartupParams, StatementError, encode};
use server::SessionError;

use super::answer::{Answer, Next};
use super::error::{During, LaboratoryError};
use super::questions::{Question, SessionState};
use super::requests::ClientNames;
use super::wire::Wire;

/// Name of the prepared statement and of the portal that the laboratory's questions use. A named one leaves the
/// client's unnamed ones intact.
const OWN: &[u8] = b"pgfresh_laboratory";
/// Longest time to wait for a question's response before `Waiting` is called.
const TICK: Duration = Duration::from_millis(20);
/// A Sync message.
const SYNC: &[u8] = b"S\0\0\0\x04";
/// A Flush message.
const FLUSH: &[u8] = b"H\0\0\0\x04";

/// Messages to send, and how to handle the response.
pub(super) struct Exchange<'a> {
    /// The messages, without a Sync.
    pub(super) messages: &'a [u8],
    /// Whether a Sync must follow the messages.
    pub(super) is_extended: bool,
    /// Whether the server may request the data of a COPY.
    pub(super) is_copy: bool,
    /// Whether to keep the rows of the response.
    pub(super) wants_rows: bool,
    /// Longest time to wait for the response before `Waiting` is called.
    pub(super) tick: Duration,
}

/// Called again and again while a session waits for a response. The argument is the time since the request.
pub(super) type Waiting<'a> = dyn FnMut(Duration) -> Result<(), LaboratoryError> + 'a;

/// A session in the laboratory's server.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each may be true independently")]
pub(super) struct RepeatedSession {
    wire: Wire,
    /// Pid of the session's backend.
    pub(super) pid: u32,
    /// The client's prepared statements and portals.
    pub(super) names: ClientNames,
    /// Transaction status: `I` (idle), `T` (in a transaction) or `E` (in a failed transaction).
    pub(super) status: u8,
    /// Whether the laboratory began the open transaction, so that it must end the transaction after the request.
    pub(super) is_wrapped: bool,
    /// Whether the open transaction's status differs from the tool's run.
    pub(super) is_lost: bool,
    /// Whether the session has ended.
    pub(super) is_over: bool,
    /// Record number of the statement that each portal runs.
    pub(super) portals: HashMap<Vec<u8>, usize>,
    /// Locks and counters after the last statement. `None` before the first statement of a transaction.
    pub(super) state: Option<SessionState>,
    /// Whether the session's database has the functions of the questions.
    pub(super) has_functions: bool,
    /// The first error of a question about the current statement. `None` if the server answered all questions.
    pub(super) refusal: Option<String>,
}

impl RepeatedSession {
    /// Starts a session with the transcript's startup parameters. `has_functions` means that its database has the
    /// functions of the questions.
    pub(super) fn open(
        folder: &Path,
        transcript: &SessionTranscript,
        has_functions: bool,
    ) -> Result<Self, SessionError> {
        let parameters = transcript.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let question = Question::Pid.sql(has_functions);
        let (wire, pid) =
            Wire::connect(folder, &StartupParams::new(parameters), &transcript.database, &question)?;
        let names = ClientNames::default();
        let (is_wrapped, is_lost, is_over) = (false, false, false);
        let (portals, state, refusal) = (HashMap::new(), None, None);
        Ok(Self {
            wire,
            pid,
            names,
            status: b'I',
            is_wrapped,
            is_lost,
            is_over,
            portals,
            state,
            has_functions,
            refusal,
        })
    }

    /// Returns true if a transaction is open and hasn't failed.
    pub(super) fn is_in_transaction(&self) -> bool {
        self.status == b'T' && !self.is_over
    }

    /// Sends messages and reads the response up to ReadyForQuery.
    pub(super) fn exchange(
        &mut self,
        exchange: &Exchange<'_>,
        copies: &mut VecDeque<Vec<u8>>,
        waiting: &mut Waiting<'_>,
    ) -> Result<Answer, LaboratoryError> {
        let mut answer = Answer::default();
        let result = self.talk(exchange, copies, waiting, &mut answer);
        match result {
            Ok(()) => {}
            // The server ended the session, for example because of pg_terminate_backend, so treat this as a fatal error
            // of the statement.
            Err(LaboratoryError::Session { source: SessionError::Io { .. }, .. }) => {
                answer.is_fatal = true;
                answer.error.get_or_insert(StatementError {
                    sqlstate: "08006".to_owned(),
                    message: "the server closed the connection".to_owned(),
                });
            }
            Err(error) => return Err(error),
        }
        self.is_over |= answer.is_fatal;
        self.status = answer.status.unwrap_or(b'I');
        self.is_wrapped &= self.status != b'I';
        if self.status != b'T' {
            self.state = None;
        }
        Ok(answer)
    }

    fn talk(
        &mut self,
        exchange: &Exchange<'_>,
        copies: &mut VecDeque<Vec<u8>>,
        waiting: &mut Waiting<'_>,
        answer: &mut Answer,
    ) -> Result<(), LaboratoryError> {
        let mut syncs_later = exchange.is_extended && exchange.is_copy;
        let end = match (exchange.is_extended, syncs_later) {
            (false, _) => &[][..],
            (true, true) => FLUSH,
            (true, false) => SYNC,
        };
        let begun = Instant::now();
        self.wire.send(&[exchange.messages, end].concat()).during("repeat a request")?;
        while answer.status.is_none() && !answer.is_fatal {
            let next = self.wire.next(exchange.tick, |frame| answer.add(frame, exchange.wants_rows));
            match next.during("repeat a request")? {
                None => waiting(begun.elapsed())?,
                Some(Next::Copy) => {
                    let data = copies.pop_front().unwrap_or_else(|| encode(b'f', b"no data\0"));
                    // Without a Sync, the server holds its response to the data back, so send one now.
                    let end = if std::mem::take(&mut syncs_later) { SYNC } else { &[] };
                    self.wire.send(&[&data, end].concat()).during("repeat a request")?;
                }
                Some(Next::Ended) if syncs_later => {
                    self.wire.send(SYNC).during("repeat a request")?;
                    syncs_later = false;
                }
                Some(Next::Read | Next::Ended) => {}
            }
        }
        Ok(())
    }

    /// Returns the SQL of a question.
    pub(super) fn sql_of(&self, question: Question) -> String {
        question.sql(self.has_functions)
    }

    /// Runs SQL of the laboratory without affecting the client's unnamed statement and portal.
    pub(super) fn ask(&mut self, sql: &str, waiting: &mut Waiting<'_>) -> Result<Answer, LaboratoryError> {
        let close = |kind: u8| encode(b'C', &[&[kind], OWN, b"\0"].concat());
        let parse = encode(b'P', &[OWN, b"\0", sql.as_bytes(), b"\0\0\0"].concat());
        let bind = encode(b'B', &[OWN, b"\0", OWN, b"\0\0\0\0\0\0\0"].concat());
        let execute = encode(b'E', &[OWN, b"\0\0\0\0\0"].concat());
        // A failed question leaves its portal open, because the server skips the messages up to the Sync.
        let messages = [close(b'S'), close(b'P'), parse, bind, execute, close(b'S'), close(b'P')].concat();
        let exchange =
            Exchange { messages: &messages, is_extended: true, is_copy: false, wants_rows: true, tick: TICK };
        self.exchange(&exchange, &mut VecDeque::new(), waiting)
    }

    /// Closes the client's prepared statements with these names, so that a repeated request can create them again.
    pub(super) fn forget(
        &mut self,
        names: &[Vec<u8>],
        waiting: &mut Waiting<'_>,
    ) -> Result<(), LaboratoryError> {
        let close = |name: &Vec<u8>| encode(b'C', &[b"S", &name[..], b"\0"].concat());
        let messages: Vec<u8> = names.iter().flat_map(close).collect();
        let exchange = Exchange {
            messages: &messages,
            is_extended: true,
            is_copy: false,
            wants_rows: false,
            tick: TICK,
        };
        self.exchange(&exchange, &mut VecDeque::new(), waiting)?;
        Ok(())
    }
}
