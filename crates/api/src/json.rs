//! Reads JSON from request bodies (with limits on size and time) and writes JSON responses.

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use contract::ErrorCode;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::problem::Problem;
use crate::{LONGEST_BODY, REQUEST_TIMEOUT};

/// A value in the body of a request or response, as JSON.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    /// The problem with a body: 413 if too long, 408 if too slow to arrive, 400 if incomplete or invalid.
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        parse(&read(request).await?).map(Self)
    }
}

/// Reads and discards a request's body, so that the client can send another request on this connection.
pub(crate) async fn ignore_body(request: Request) -> Result<Request, Problem> {
    let (parts, body) = request.into_parts();
    read(Request::from_parts(parts.clone(), body)).await?;
    Ok(Request::from_parts(parts, Body::empty()))
}

async fn read(request: Request) -> Result<Bytes, Problem> {
    let too_long = || {
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::TooLong, "the body is too long")
            .detail(format!("A body can have at most {LONGEST_BODY} bytes."))
    };
    // Refuse a body by its announced length, before the client sends it.
    if request.body().size_hint().lower() > LONGEST_BODY as u64 {
        return Err(too_long());
    }
    let read = timeout(REQUEST_TIMEOUT, Bytes::from_request(request, &())).await.map_err(|_| {
        let message = format!("the request body was incomplete after {} s", REQUEST_TIMEOUT.as_secs());
        Problem::new(StatusCode::REQUEST_TIMEOUT, ErrorCode::TimedOut, message)
    })?;
    read.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => too_long(),
        status => Problem::new(status, ErrorCode::BrokenBody, "could not read the body")
            .detail(format!("{}.", rejection.body_text())),
    })
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        // This can't fail, because pgfresh's values consist only of strings, numbers and maps with string keys.
        let text = serde_json::to_vec(&self.0).map_err(|_| Problem::defect());
        ([(CONTENT_TYPE, "application/json")], text).into_response()
    }
}

/// Parses `body` as JSON. An empty body counts as an empty object.
///
/// # Errors
///
/// Returns 400 if the JSON is invalid or contains an unknown name, so that clients notice misspelled names.
fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let body = if body.trim_ascii().is_empty() { b"{}" } else { body };
    let wrong = |why: &str| {
        Problem::new(StatusCode::BAD_REQUEST, ErrorCode::InvalidBody, "cannot read the body as JSON")
            .detail(format!("The body is invalid: {why}."))
    };
    // The parser would accept an array of the members' values.
    if body.trim_ascii_start().starts_with(b"[") {
        return Err(wrong("it is an array"));
    }
    serde_json::from_slice(body).map_err(|error| wrong(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize, Debug, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Named {
        name: Option<String>,
    }

    #[test]
    fn empty_body_parses_and_unknown_fields_are_errors() {
        assert_eq!(parse(b" \n"), Ok(Named { name: None }));
        assert_eq!(parse(br#"{"name":"a"}"#), Ok(Named { name: Some("a".into()) }));
        for wrong in [&br#"{"nmae":"a"}"#[..], b"[]", b"{", br#"{"name":1}"#, br#" ["a"]"#] {
            assert_eq!(parse::<Named>(wrong).unwrap_err().status, StatusCode::BAD_REQUEST);
        }
    }

    #[tokio::test]
    async fn announced_length_is_enough_to_refuse_a_body() {
        let body = |length: usize| Request::new(Body::from(vec![b' '; length]));
        assert_eq!(read(body(LONGEST_BODY)).await.unwrap().len(), LONGEST_BODY);
        let problem = read(body(LONGEST_BODY + 1)).await.unwrap_err();
        assert_eq!(problem.status, StatusCode::PAYLOAD_TOO_LARGE);
    }
}
