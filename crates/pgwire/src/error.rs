//! Parses and writes `ErrorResponse` messages.

use std::borrow::Cow;

use crate::frame::{encode, split_zero};

/// An error in PostgreSQL's protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ErrorResponse {
    /// ERROR, FATAL or PANIC.
    pub severity: Cow<'static, str>,
    /// The five-character error code. Source: the manual's appendix A.
    pub sqlstate: Cow<'static, str>,
    /// The primary message.
    pub message: Cow<'static, str>,
    /// A detail, such as the cause.
    pub detail: Option<Cow<'static, str>>,
    /// Advice for the user.
    pub hint: Option<Cow<'static, str>>,
}

impl ErrorResponse {
    /// Creates an error that ends the session.
    pub fn fatal(sqlstate: impl Into<Cow<'static, str>>, message: impl Into<Cow<'static, str>>) -> Self {
        let (sqlstate, message) = (sqlstate.into(), message.into());
        Self { severity: "FATAL".into(), sqlstate, message, detail: None, hint: None }
    }

    /// Creates the error for a protocol violation, i.e. for invalid bytes from a client.
    pub fn violation(message: impl Into<Cow<'static, str>>) -> Self {
        Self::fatal("08P01", message)
    }

    /// Adds advice for the user.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds a detail.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Parses the body of an error message. Missing fields are empty.
    #[must_use]
    pub fn read(body: &[u8]) -> Self {
        let mut error = Self::default();
        for (code, value) in Self::fields(body) {
            let text = || String::from_utf8_lossy(value).into_owned().into();
            match code {
                // Field V contains the severity in English, whereas field S may contain a translation.
                b'V' => error.severity = text(),
                b'C' => error.sqlstate = text(),
                b'M' => error.message = text(),
                b'D' => error.detail = Some(text()),
                b'H' => error.hint = Some(text()),
                _ => {}
            }
        }
        error
    }

    /// Returns the fields in a body, each with its code and value.
    pub fn fields(body: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
        let mut rest = body;
        std::iter::from_fn(move || {
            let (code, fields) = rest.split_first().filter(|(code, _)| **code != 0)?;
            let (value, after) = split_zero(fields);
            rest = after;
            Some((*code, value))
        })
    }

    /// Encodes the error as a frame.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(128);
        let mut field = |code: u8, text: &str| {
            body.push(code);
            body.extend(text.bytes().filter(|byte| *byte != 0));
            body.push(0);
        };
        field(b'S', &self.severity);
        field(b'V', &self.severity);
        field(b'C', &self.sqlstate);
        field(b'M', &self.message);
        if let Some(detail) = &self.detail {
            field(b'D', detail);
        }
        if let Some(hint) = &self.hint {
            field(b'H', hint);
        }
        body.push(0);
        encode(b'E', &body)
    }

    /// Encodes the error for a client with protocol 1 or 2, as a single line without fields.
    #[must_use]
    pub fn to_old_bytes(&self) -> Vec<u8> {
        let text: Vec<u8> = self.message.bytes().filter(|byte| *byte != 0).collect();
        [b"E", self.severity.as_bytes(), b":  ", &text, b"\n\0"].concat()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::frame::HEADER;

    #[test]
    fn an_error_response_has_every_field_once() {
        let bytes = ErrorResponse::fatal("3D000", "no\0 such").hint("Make one.").to_bytes();
        assert_eq!(bytes, b"E\x00\x00\x00\x2eSFATAL\0VFATAL\0C3D000\0Mno such\0HMake one.\0\0");
    }

    #[test]
    fn an_old_client_gets_one_line() {
        assert_eq!(ErrorResponse::violation("no\0 such").to_old_bytes(), b"EFATAL:  no such\n\0");
    }

    proptest! {
        #[test]
        fn written_errors_are_read_back(
            message in "[^\0]{0,9}", detail in prop::option::of("[^\0]{0,9}"), hint in prop::option::of("[^\0]{0,9}")
        ) {
            let mut error = ErrorResponse::violation(message);
            (error.detail, error.hint) = (detail.map(Into::into), hint.map(Into::into));
            prop_assert_eq!(ErrorResponse::read(&error.to_bytes()[HEADER..]), error);
        }
    }
}
