//! Errors of requests, each with a SQLSTATE.

use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use lease::LeaseError;
use serde::Serialize;

/// Error of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    #[serde(skip)]
    pub(crate) status: StatusCode,
    /// SQLSTATE. SQL and HTTP use the same list of codes.
    code: String,
    pub(crate) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// Header that the status requires, e.g. `Allow` or `WWW-Authenticate`.
    #[serde(skip)]
    pub(crate) header: Option<Box<(HeaderName, String)>>,
}

/// Creates a response without a body. [`crate::render`] adds the body, because it knows what kind of client reads it.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        let (code, message) = (code.to_owned(), message.into());
        Self { status, code, message, detail: None, hint: None, header: None }
    }

    /// Returns the error for a parameter with an invalid value.
    pub(crate) fn invalid(name: &str, value: &str, hint: impl Into<String>) -> Self {
        let what = format!("invalid value for \"{name}\": \"{value}\"");
        Self::new(StatusCode::BAD_REQUEST, "22023", what).hint(hint)
    }

    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn header(mut self, name: HeaderName, value: impl Into<String>) -> Self {
        self.header = Some(Box::new((name, value.into())));
        self
    }

    /// Treats an error as success if its cause is the end of the server.
    pub(crate) fn unless_closed(self) -> Result<StatusCode, Self> {
        if self.code == "57P01" { Ok(StatusCode::NO_CONTENT) } else { Err(self) }
    }

    /// Returns the error for a panic in pgfresh.
    pub(crate) fn defect() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "XX000", "the request ended in an internal error")
    }
}

impl From<LeaseError> for Problem {
    fn from(error: LeaseError) -> Self {
        let code = error.sqlstate();
        let status = match code {
            "3D000" => StatusCode::NOT_FOUND,
            "42602" | "0A000" => StatusCode::BAD_REQUEST,
            "42P04" | "55006" => StatusCode::CONFLICT,
            // Connection exceptions and insufficient resources can be temporary, and are not the client's fault.
            _ if code.starts_with("08") || code.starts_with("53") => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let problem = Self::new(status, code, error.with_causes());
        Self { detail: error.detail(), hint: error.hint(), ..problem }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_error_has_its_status() {
        let broken = || std::io::Error::other("gone");
        for (error, status) in [
            (LeaseError::NotLeased("a".into()), StatusCode::NOT_FOUND),
            (LeaseError::InUse { name: "a".into(), sessions: 1 }, StatusCode::CONFLICT),
            (LeaseError::Name { name: "a".into(), why: "it is taken" }, StatusCode::BAD_REQUEST),
            (LeaseError::Full { leased: 1, kept: 0, most: 1 }, StatusCode::SERVICE_UNAVAILABLE),
            (LeaseError::Io { verb: "read", source: broken() }, StatusCode::SERVICE_UNAVAILABLE),
        ] {
            assert_eq!(Problem::from(error).status, status);
        }
    }
}
