//! Collects the server's response to the messages of one statement.

use pgwire::{ErrorResponse, Frame, StatementError, columns, split_zero};
use server::Rows;

/// A response up to and including ReadyForQuery.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Tags of the CommandComplete messages, such as `INSERT 0 1`.
    pub(super) tags: Vec<String>,
    /// Whether a portal was suspended and has more rows.
    pub(super) is_suspended: bool,
    /// The first error. `None` if there was none.
    pub(super) error: Option<StatementError>,
    /// Whether the error ended the session.
    pub(super) is_fatal: bool,
    /// Transaction status from ReadyForQuery. `None` until this message arrives.
    pub(super) status: Option<u8>,
    /// The rows, if the caller wants them.
    pub(super) rows: Rows,
}

/// Next action of a request's sender after a message from the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Read the next message.
    Read,
    /// Send the data of a COPY.
    Copy,
    /// The current statement has ended, so its result can be recorded.
    Ended,
}

impl Answer {
    /// Adds a message from the server. Keeps its row if `wants_rows` is true.
    pub(super) fn add(&mut self, frame: Frame<'_>, wants_rows: bool) -> Next {
        match frame.tag {
            b'C' => self.tags.push(String::from_utf8_lossy(split_zero(frame.body).0).into_owned()),
            b's' => self.is_suspended = true,
            b'E' => {
                let error = ErrorResponse::read(frame.body);
                let severity = error.severity.as_ref();
                self.is_fatal |= severity != "ERROR";
                self.error.get_or_insert(StatementError {
                    sqlstate: error.sqlstate.into_owned(),
                    message: error.message.into_owned(),
                });
            }
            b'Z' => self.status = frame.body.first().copied(),
            b'G' | b'W' => return Next::Copy,
            b'D' if wants_rows => {
                let text = |value| String::from_utf8_lossy(value).into_owned();
                self.rows.push(columns(frame.body).map(|value| value.map(text)).collect());
            }
            _ => {}
        }
        if matches!(frame.tag, b'C' | b's' | b'I' | b'E') { Next::Ended } else { Next::Read }
    }

    /// Returns the SQLSTATE of the error. `None` if there was none.
    pub(super) fn sqlstate(&self) -> Option<&str> {
        self.error.as_ref().map(|error| error.sqlstate.as_str())
    }
}
