//! The server's answer to a few messages.

use pgwire::{ErrorResponse, Frame, StatementError, columns, split_zero};
use server::Rows;

/// Everything up to ReadyForQuery.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Command tags.
    pub(super) tags: Vec<String>,
    /// Whether a portal has more rows.
    pub(super) is_suspended: bool,
    /// The first error.
    pub(super) error: Option<StatementError>,
    /// Whether the error ended the session.
    pub(super) is_fatal: bool,
    /// Transaction status of ReadyForQuery. `None` until it comes.
    pub(super) status: Option<u8>,
    /// Rows, if they are wanted.
    pub(super) rows: Rows,
}

/// Next action for the sender of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Read on.
    Read,
    /// Send the data of a COPY.
    Copy,
    /// The current statement has ended.
    Ended,
}

impl Answer {
    /// Adds a message of the server.
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

    /// Returns the SQLSTATE of the error.
    pub(super) fn sqlstate(&self) -> Option<&str> {
        self.error.as_ref().map(|error| error.sqlstate.as_str())
    }
}
