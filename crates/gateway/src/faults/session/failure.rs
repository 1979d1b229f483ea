//! Plans errors that the server will raise: which responses precede the error, and how to recognize it.

use std::collections::VecDeque;

use super::messages::{MISSING_TABLE, failing, failing_query};
use crate::faults::errors::field;
use crate::faults::fault::FaultEffect;
use crate::faults::statement::Statement;

/// A change to the client's query string, which shifts positions in the server's errors.
#[derive(Debug, Clone, Copy)]
struct Shift {
    /// Number of characters before the change.
    start: usize,
    /// Length of the changed part in characters: `old` before the change, and `new` after it.
    old: usize,
    new: usize,
}

/// A planned error that the server will raise.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct Failure {
    pub(super) sqlstate: String,
    /// Position of the failing statement.
    pub(super) at: usize,
    pub(super) is_commit: bool,
    /// Whether the statement runs before it fails.
    pub(super) is_after: bool,
    /// Effect that ends the connection in place of the error.
    pub(super) end: Option<FaultEffect>,
    /// Whether the server has raised the error.
    pub(super) has_fired: bool,
    /// Tags of the server's responses before the error. The client doesn't receive these responses.
    answers: VecDeque<u8>,
    shift: Option<Shift>,
}

impl Failure {
    fn new(sqlstate: &str, at: usize, answers: impl IntoIterator<Item = u8>) -> Self {
        Self {
            sqlstate: sqlstate.to_owned(),
            at,
            is_commit: false,
            is_after: false,
            end: None,
            has_fired: false,
            answers: answers.into_iter().collect(),
            shift: None,
        }
    }

    /// Returns a failure whose failing statement has already been sent.
    pub(super) fn sent(sqlstate: &str) -> Self {
        Self::new(sqlstate, 0, [])
    }

    /// Returns the failure of a COMMIT in the extended protocol.
    pub(super) fn of_commit_execute(sqlstate: &str) -> Self {
        Self { is_commit: true, ..Self::new(sqlstate, 0, *b"12C33") }
    }

    /// Returns the failure of a Query with a single statement, and the messages for the server.
    pub(super) fn of_single(sqlstate: &str, sql: &[u8]) -> (Self, Vec<u8>) {
        (Self::new(sqlstate, 0, *b"1tT"), failing_query(sqlstate, sql))
    }

    /// Plans an error before the statement at position `at`. Returns the failure and the changed query string.
    pub(super) fn before(sqlstate: &str, at: usize, sql: &[u8], statement: &Statement) -> (Self, Vec<u8>) {
        let start = statement.place.start;
        Self::new(sqlstate, at, []).change(sql, start..start, &format!("{}; ", failing(sqlstate)))
    }

    /// Plans an error after the statement at position `at`. Returns the failure and the changed query string.
    pub(super) fn after(sqlstate: &str, at: usize, sql: &[u8], statement: &Statement) -> (Self, Vec<u8>) {
        let end = statement.place.end;
        let failure = Self { is_after: true, ..Self::new(sqlstate, at, *b"C") };
        // Begin with a newline, because the statement might end with a comment.
        failure.change(sql, end..end, &format!("\n; {}", failing(sqlstate)))
    }

    /// Returns the failure of a COMMIT in a query string, and the string for the server.
    pub(super) fn of_commit(sqlstate: &str, at: usize, sql: &[u8], statement: &Statement) -> (Self, Vec<u8>) {
        let failure = Self { is_commit: true, ..Self::new(sqlstate, at, *b"C") };
        failure.change(sql, statement.place.clone(), &format!("ROLLBACK; {}", failing(sqlstate)))
    }

    fn change(mut self, sql: &[u8], place: std::ops::Range<usize>, text: &str) -> (Self, Vec<u8>) {
        self.shift = Some(Shift {
            start: characters(&sql[..place.start]),
            old: characters(&sql[place.clone()]),
            new: text.len(),
        });
        (self, [&sql[..place.start], text.as_bytes(), &sql[place.end..]].concat())
    }

    /// Processes the tag of a response while the failing statement runs. Returns true if the response is the next
    /// expected one before the error, so that the client must not receive it.
    pub(super) fn expects(&mut self, tag: u8) -> bool {
        // For a statement without rows, the server sends NoData in place of a RowDescription.
        let tag = if tag == b'n' { b'T' } else { tag };
        let is_expected = self.answers.front() == Some(&tag);
        if is_expected {
            self.answers.pop_front();
        }
        is_expected
    }

    /// Returns true if `error` is the planned error.
    pub(super) fn is_raised_by(&self, error: &[u8]) -> bool {
        self.answers.is_empty() && !self.has_fired && field(error, b'C') == Some(MISSING_TABLE)
    }

    /// Maps a position in the server's query string to the client's string.
    pub(super) fn position(&self, position: usize) -> usize {
        match self.shift {
            // Positions start at 1.
            Some(Shift { start, old, new }) if position > start + new => position - new + old,
            _ => position,
        }
    }
}

/// Counts UTF-8 characters as the server does, by skipping continuation bytes.
fn characters(text: &[u8]) -> usize {
    text.iter().filter(|byte| **byte & 0xc0 != 0x80).count()
}
