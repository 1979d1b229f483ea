//! What comes in behind a request's head: bounded in size and time, and read as JSON.

use std::future::poll_fn;
use std::pin::Pin;

use hyper::StatusCode;
use hyper::body::{Body as _, Incoming};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::REQUEST_TIMEOUT;
use crate::answer::Problem;

/// Bytes that a body may have: names, not data.
const LONGEST: usize = 1 << 20;

/// Reads a body to its end.
///
/// # Errors
/// 413 if it is too long, 408 if it takes too long, 400 if it breaks off.
pub(crate) async fn read(body: Incoming) -> Result<Vec<u8>, Problem> {
    let slow = |_| {
        Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "57014",
            format!("no whole body came in {} s", REQUEST_TIMEOUT.as_secs()),
        )
    };
    timeout(REQUEST_TIMEOUT, read_all(body)).await.map_err(slow)?
}

async fn read_all(mut body: Incoming) -> Result<Vec<u8>, Problem> {
    let mut read = Vec::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let broken = |error: hyper::Error| {
            Problem::new(StatusCode::BAD_REQUEST, "08P01", "could not read the body")
                .detail(format!("It said: {error}."))
        };
        if let Ok(data) = frame.map_err(broken)?.into_data() {
            if read.len() + data.len() > LONGEST {
                let problem = Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "54000", "the body is too long");
                return Err(problem.detail(format!("It may have {LONGEST} bytes.")));
            }
            read.extend_from_slice(&data);
        }
    }
    Ok(read)
}

/// Reads `body` as JSON; none at all is an empty object.
///
/// # Errors
/// 400 for what is no JSON, and for names that are not known: a misspelt one would silently do nothing.
pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let body = if body.trim_ascii().is_empty() { b"{}" } else { body };
    serde_json::from_slice(body).map_err(|error| {
        Problem::new(StatusCode::BAD_REQUEST, "22032", "cannot read the body as JSON")
            .detail(format!("It has an error: {error}."))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize, Debug, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Wish {
        name: Option<String>,
    }

    #[test]
    fn nothing_is_an_empty_object_and_other_names_are_errors() {
        assert_eq!(parse(b" \n"), Ok(Wish { name: None }));
        assert_eq!(parse(br#"{"name":"a"}"#), Ok(Wish { name: Some("a".into()) }));
        for wrong in [&br#"{"nmae":"a"}"#[..], b"[]", b"{", br#"{"name":1}"#] {
            assert_eq!(parse::<Wish>(wrong).unwrap_err().status, StatusCode::BAD_REQUEST);
        }
    }
}
