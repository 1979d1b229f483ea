//! A planned error: which answers of the server come before it, and how the session recognizes it.

use std::collections::VecDeque;

use super::messages::{MISSING_TABLE, failing, failing_query};
use crate::faults::errors::field;
use crate::faults::fault::FaultEffect;
use crate::faults::statement::Statement;

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
    /// End of the connection in place of the error.
    pub(super) end: Option<FaultEffect>,
    /// Whether the server has raised the error.
    pub(super) has_fired: bool,
    /// Tags of the answers that the server sends first. The client does not get them.
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

    /// Returns a failure for which the failing statement is already on its way.
    pub(super) fn sent(sqlstate: &str) -> Self {
        Self::new(sqlstate, 0, [])
    }

    /// Returns a failure of a COMMIT in the extended protocol.
    pub(super) fn of_commit_execute(sqlstate: &str) -> Self {
        Self { is_commit: true, ..Self::new(sqlstate, 0, *b"12C33") }
    }

    /// Returns the failure of a Query with a single statement, and the messages for the server.
    pub(super) fn of_single(sqlstate: &str, sql: &[u8]) -> (Self, Vec<u8>) {
        (Self::new(sqlstate, 0, *b"1tT"), failing_query(sqlstate, sql))
    }

    /// Plans an error before the statement number `at`; returns it, and the changed string.
    pub(super) fn before(sqlstate: &str, at: usize, sql: &[u8], statement: &Statement) -> (Self, Vec<u8>) {
        let start = statement.place.start;
        Self::new(sqlstate, at, []).change(sql, start..start, &format!("{}; ", failing(sqlstate)))
    }

    /// Plans an error after the statement number `at`; returns it, and the changed string.
    pub(super) fn after(sqlstate: &str, at: usize, sql: &[u8], statement: &Statement) -> (Self, Vec<u8>) {
        let end = statement.place.end;
        let failure = Self { is_after: true, ..Self::new(sqlstate, at, *b"C") };
        // The statement may end with a comment.
        failure.change(sql, end..end, &format!("\n; {}", failing(sqlstate)))
    }

    /// Returns the failure of a COMMIT in a string, and the string for the server.
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

    /// Processes the tag of an answer while the failing statement is running. Returns true if this is the next answer before
    /// the error, which the client must not get.
    pub(super) fn expects(&mut self, tag: u8) -> bool {
        // A statement without rows has NoData in place of a RowDescription.
        let tag = if tag == b'n' { b'T' } else { tag };
        let is_expected = self.answers.front() == Some(&tag);
        if is_expected {
            self.answers.pop_front();
        }
        is_expected
    }

    /// Returns true if the server's message is the planned error.
    pub(super) fn is_raised_by(&self, error: &[u8]) -> bool {
        self.answers.is_empty() && !self.has_fired && field(error, b'C') == Some(MISSING_TABLE)
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
