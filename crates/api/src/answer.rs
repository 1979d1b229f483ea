//! What goes back: bodies, JSON, and problems with their SQLSTATE.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Bytes, Frame, SizeHint};
use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};
use lease::LeaseError;
use serde::Serialize;
use tokio::sync::mpsc;

/// A response's body.
#[derive(Debug)]
pub(crate) enum Body {
    /// All of it.
    Whole(Bytes),
    /// One piece after another, for as long as the client listens.
    Stream(mpsc::Receiver<Bytes>),
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Stream(pieces) => {
                pieces.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

/// A body of that type.
pub(crate) fn typed(kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// `value` as JSON.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    // Strings, numbers and maps with string keys: none of our values can fail.
    let text = serde_json::to_vec(value).unwrap_or_default();
    let mut response = typed("application/json", Body::Whole(text.into()));
    *response.status_mut() = status;
    response
}

/// Done, and nothing to say.
pub(crate) fn no_content() -> Response<Body> {
    let mut response = Response::new(Body::Whole(Bytes::new()));
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// Why a request was not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    /// A SQLSTATE, so that there is one list of codes for SQL and HTTP.
    code: String,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    /// A header that belongs to the status: `Allow`, `WWW-Authenticate`.
    header: Option<Box<(header::HeaderName, HeaderValue)>>,
}

/// A problem as clients see it.
#[derive(Serialize)]
struct Report<'a> {
    error: Words<'a>,
    /// The message again, where integresql's clients look for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

#[derive(Serialize)]
struct Words<'a> {
    code: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        let (code, message) = (code.to_owned(), message.into());
        Self { status, code, message, detail: None, hint: None, header: None }
    }

    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn header(mut self, name: header::HeaderName, value: HeaderValue) -> Self {
        self.header = Some(Box::new((name, value)));
        self
    }

    /// A defect of ours: somebody panicked.
    pub(crate) fn defect() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "XX000", "the request ended in an internal error")
    }

    /// As JSON; `plain` repeats the message at the top, as integresql words its errors.
    pub(crate) fn response(&self, plain: bool) -> Response<Body> {
        let error = Words {
            code: &self.code,
            message: &self.message,
            detail: self.detail.as_deref(),
            hint: self.hint.as_deref(),
        };
        let mut response = json(self.status, &Report { error, message: plain.then_some(&self.message) });
        if let Some((name, value)) = self.header.as_deref() {
            response.headers_mut().insert(name, value.clone());
        }
        response
    }
}

impl From<LeaseError> for Problem {
    fn from(error: LeaseError) -> Self {
        let code = error.sqlstate();
        let status = match code {
            "3D000" => StatusCode::NOT_FOUND,
            "42602" | "0A000" => StatusCode::BAD_REQUEST,
            "42P04" | "55006" => StatusCode::CONFLICT,
            // Connection exceptions, insufficient resources: not the request's fault, and it may pass.
            _ if code.starts_with("08") || code.starts_with("53") => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let problem = Self::new(status, code, error.to_string());
        Self { detail: error.detail(), hint: error.hint(), ..problem }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(response: Response<Body>) -> String {
        match response.into_body() {
            Body::Whole(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            Body::Stream(_) => panic!("a stream"),
        }
    }

    #[test]
    fn a_database_error_keeps_its_words_and_its_code() {
        let error = LeaseError::UnknownTemplate { name: "shop".into(), known: vec!["base".into()] };
        let response = Problem::from(error).response(false);
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        assert_eq!(
            text(response),
            r#"{"error":{"code":"3D000","message":"template \"shop\" does not exist","detail":"This server has base."}}"#
        );
    }

    #[test]
    fn each_kind_of_error_has_its_status() {
        let broken = || std::io::Error::other("gone");
        for (error, status) in [
            (LeaseError::NotLeased("a".into()), StatusCode::NOT_FOUND),
            (LeaseError::InUse { name: "a".into(), sessions: 1 }, StatusCode::CONFLICT),
            (LeaseError::Name { name: "a".into(), why: "it is taken" }, StatusCode::BAD_REQUEST),
            (LeaseError::Full { leased: 1, most: 1 }, StatusCode::SERVICE_UNAVAILABLE),
            (LeaseError::Io { verb: "read", source: broken() }, StatusCode::SERVICE_UNAVAILABLE),
        ] {
            assert_eq!(Problem::from(error).status, status);
        }
    }

    #[test]
    fn integresql_finds_the_message_where_it_looks() {
        let problem = Problem::new(StatusCode::LOCKED, "55006", "template is already initialized");
        assert_eq!(
            text(problem.response(true)),
            r#"{"error":{"code":"55006","message":"template is already initialized"},"message":"template is already initialized"}"#
        );
    }
}
