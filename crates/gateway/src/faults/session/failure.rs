//! A planned error: which answers of the server come before it, and how the session recognizes it.

use std::collections::VecDeque;

use super::messages::{
    CANCELED, COPY_READER, MISSING_TABLE, copy_fail, failing, failing_execute, failing_query,
};
use crate::faults::errors::field;
use crate::faults::statement::{Kind, Statement};

/// An answer that comes before the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Hidden(u8),
    /// The client gets the answer, as it does from a server whose statement fails while it runs.
    Shown(u8),
}

impl Answer {
    fn tag(self) -> u8 {
        match self {
            Self::Hidden(tag) | Self::Shown(tag) => tag,
        }
    }
}

/// A change of the client's string, which moves the positions in the server's errors.
#[derive(Debug, Clone, Copy)]
struct Shift {
    /// Number of characters before the change.
    start: usize,
    /// Number of characters of the string in the place of the change, before and after it.
    old: usize,
    new: usize,
}

/// An error that the server will raise.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct Failure {
    pub(super) sqlstate: String,
    /// Position of the statement that fails.
    pub(super) at: usize,
    pub(super) is_commit: bool,
    /// Whether the statement runs before it fails.
    pub(super) is_after: bool,
    /// Whether the server has raised the error.
    pub(super) has_fired: bool,
    /// Answers that the server sends first.
    answers: VecDeque<Answer>,
    /// Whether the client gets no data of a COPY TO, which real errors interrupt.
    pub(super) drops_output: bool,
    /// Messages for the server after the answers.
    then: Vec<u8>,
    shift: Option<Shift>,
}

impl Failure {
    fn new(sqlstate: &str, at: usize, answers: impl IntoIterator<Item = Answer>) -> Self {
        Self {
            sqlstate: sqlstate.to_owned(),
            at,
            is_commit: false,
            is_after: false,
            has_fired: false,
            answers: answers.into_iter().collect(),
            drops_output: false,
            then: Vec::new(),
            shift: None,
        }
    }

    /// Returns a failure for which the failing statement is already on its way.
    pub(super) fn sent(sqlstate: &str) -> Self {
        Self::new(sqlstate, 0, [])
    }

    /// Returns a failure of a COMMIT in the extended protocol.
    pub(super) fn of_commit_execute(sqlstate: &str) -> Self {
        let answers = [b'1', b'2', b'C', b'3', b'3'].map(Answer::Hidden);
        Self { is_commit: true, ..Self::new(sqlstate, 0, answers) }
    }

    /// Returns a failure of a COPY FROM STDIN, once the client may send data.
    pub(super) fn of_copy_in(sqlstate: &str, at: usize) -> Self {
        Self { then: copy_fail(), ..Self::new(sqlstate, at, [Answer::Shown(b'G')]) }
    }

    /// Returns a failure of a COPY TO STDOUT in the extended protocol, after the server has run it.
    pub(super) fn of_copy_out(sqlstate: &str) -> Self {
        let then = failing_execute(sqlstate);
        Self { drops_output: true, then, ..Self::new(sqlstate, 0, [Answer::Hidden(b'C')]) }
    }

    /// Returns the failure of a Query with a single statement, and the messages for the server.
    pub(super) fn of_single(sqlstate: &str, sql: &[u8], statement: &Statement) -> (Self, Vec<u8>) {
        let describes = statement.kind == Kind::Select && sqlstate != "25006";
        let description = if describes { Answer::Shown(b'T') } else { Answer::Hidden(b'T') };
        let answers = [Answer::Hidden(b'1'), Answer::Hidden(b't'), description];
        (Self::new(sqlstate, 0, answers), failing_query(sqlstate, sql))
    }

    /// Plans an error before the statement number `at`; returns it, and the changed string.
    pub(super) fn before(sqlstate: &str, at: usize, sql: &[u8], statement: &Statement) -> (Self, Vec<u8>) {
        let start = statement.place.start;
        Self::new(sqlstate, at, []).change(sql, start..start, &format!("{}; ", failing(sqlstate)))
    }

    /// Plans an error after the statement number `at`; returns it, and the changed string.
    pub(super) fn after(sqlstate: &str, at: usize, sql: &[u8], statement: &Statement) -> (Self, Vec<u8>) {
        let end = statement.place.end;
        let failure = Self { is_after: true, ..Self::new(sqlstate, at, [Answer::Hidden(b'C')]) };
        // The statement may end with a comment.
        failure.change(sql, end..end, &format!("\n; {}", failing(sqlstate)))
    }

    /// Returns the failure of a COMMIT in a string, and the string for the server.
    pub(super) fn of_commit(sqlstate: &str, at: usize, sql: &[u8], statement: &Statement) -> (Self, Vec<u8>) {
        let failure = Self { is_commit: true, ..Self::new(sqlstate, at, [Answer::Hidden(b'C')]) };
        failure.change(sql, statement.place.clone(), &format!("ROLLBACK; {}", failing(sqlstate)))
    }

    /// Drops the data of a COPY TO.
    pub(super) fn without_output(self) -> Self {
        Self { drops_output: true, ..self }
    }

    fn change(mut self, sql: &[u8], place: std::ops::Range<usize>, text: &str) -> (Self, Vec<u8>) {
        self.shift = Some(Shift {
            start: characters(&sql[..place.start]),
            old: characters(&sql[place.clone()]),
            new: text.len(),
        });
        (self, [&sql[..place.start], text.as_bytes(), &sql[place.end..]].concat())
    }

    /// Processes the tag of an answer while the failing statement is the running one. Returns `None` if it is no answer
    /// before the error.
    pub(super) fn answer(&mut self, tag: u8) -> Option<Answer> {
        // A statement without rows has NoData in place of a RowDescription.
        let tag = if tag == b'n' { b'T' } else { tag };
        let answer = *self.answers.front().filter(|answer| answer.tag() == tag)?;
        self.answers.pop_front();
        Some(answer)
    }

    /// Returns the messages that the server must get once it has sent all answers before the error.
    pub(super) fn take_messages(&mut self) -> Vec<u8> {
        if self.answers.is_empty() { std::mem::take(&mut self.then) } else { Vec::new() }
    }

    /// Returns true if the server's message is the planned error.
    pub(super) fn is_raised_by(&self, error: &[u8]) -> bool {
        let sqlstate = field(error, b'C');
        // A cancel request has the same SQLSTATE.
        let is_copy_failure = sqlstate == Some(CANCELED) && field(error, b'R') == Some(COPY_READER);
        self.answers.is_empty() && !self.has_fired && (sqlstate == Some(MISSING_TABLE) || is_copy_failure)
    }

    /// Returns the position in the client's string for a position in the server's.
    pub(super) fn position(&self, position: usize) -> usize {
        match self.shift {
            // Positions begin with 1.
            Some(Shift { start, old, new }) if position > start + new => position - new + old,
            _ => position,
        }
    }
}

/// Counts characters as the server does, i.e. without the continuation bytes of UTF-8.
fn characters(text: &[u8]) -> usize {
    text.iter().filter(|byte| **byte & 0xc0 != 0x80).count()
}
