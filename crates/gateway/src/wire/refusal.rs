//! Why a session ends, in the server's own form.

use std::borrow::Cow;

use lease::LeaseError;

/// An error that ends a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    sqlstate: Cow<'static, str>,
    message: Cow<'static, str>,
    detail: Option<String>,
    hint: Option<Cow<'static, str>>,
}

impl Refusal {
    /// `sqlstate` is from the manual's appendix A.
    pub(crate) fn new(sqlstate: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { sqlstate: sqlstate.into(), message: message.into(), detail: None, hint: None }
    }

    /// What the client sent is not the protocol.
    pub(crate) fn violation(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new("08P01", message)
    }

    /// Adds what to do.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds what is behind it.
    #[must_use]
    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// The ErrorResponse for an error, which is the server's own where it was the server that refused.
    pub(crate) fn words(error: LeaseError) -> Vec<u8> {
        match error {
            LeaseError::Refused(words) => words,
            error => Self::from(&error).to_bytes(),
        }
    }

    /// Its ErrorResponse, severity FATAL.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(128);
        let mut field = |code: u8, text: &str| {
            body.push(code);
            body.extend(text.bytes().filter(|byte| *byte != 0));
            body.push(0);
        };
        field(b'S', "FATAL");
        field(b'V', "FATAL");
        field(b'C', &self.sqlstate);
        field(b'M', &self.message);
        if let Some(detail) = &self.detail {
            field(b'D', detail);
        }
        if let Some(hint) = &self.hint {
            field(b'H', hint);
        }
        body.push(0);
        let length = u32::try_from(body.len() + 4).unwrap_or(u32::MAX);
        [b"E", &length.to_be_bytes()[..], &body].concat()
    }
}

impl From<&LeaseError> for Refusal {
    fn from(error: &LeaseError) -> Self {
        Self {
            sqlstate: error.sqlstate().to_owned().into(),
            message: with_causes(error).into(),
            detail: error.detail(),
            hint: error.hint().map(Cow::Owned),
        }
    }
}

/// The error and what caused it, in one line: a client shows no chain.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_response_has_every_field_once() {
        let bytes = Refusal::new("3D000", "no\0 such").hint("Make one.").to_bytes();
        assert_eq!(bytes, b"E\x00\x00\x00\x2eSFATAL\0VFATAL\0C3D000\0Mno such\0HMake one.\0\0");
    }

    #[test]
    fn a_database_error_keeps_its_words() {
        let error = LeaseError::UnknownTemplate { name: "shop".to_owned(), known: vec!["main".to_owned()] };
        let bytes = Refusal::from(&error).to_bytes();
        let text = String::from_utf8_lossy(&bytes);
        assert!(
            text.contains("C3D000\0Mtemplate \"shop\" does not exist\0DThis server has main.\0"),
            "{text}"
        );
    }
}
