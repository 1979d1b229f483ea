//! Normalizes request paths and reads query parameters.

use std::borrow::Cow;

use axum::extract::Request;
use axum::http::{StatusCode, Uri};
use contract::{ErrorCode, Remedy};
use percent_encoding::percent_decode_str;
use server::percent_encode;

use crate::problem::Problem;

/// Returns a query parameter's decoded value, or `None` if it is missing or not UTF-8.
pub(crate) fn query(uri: &Uri, name: &str) -> Option<String> {
    values(uri, name).find_map(|value| decode(&value).map(Cow::into_owned))
}

/// Like [`query`], but replaces invalid UTF-8 with U+FFFD.
pub(crate) fn query_lossily(uri: &Uri, name: &str) -> Option<String> {
    let value = values(uri, name).next()?;
    Some(percent_decode_str(&value).decode_utf8_lossy().into_owned())
}

/// Returns a query parameter's values, still percent-encoded. A plus counts as a space, because browsers and many
/// libraries encode spaces this way.
fn values(uri: &Uri, name: &str) -> impl Iterator<Item = String> {
    let pairs = uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    pairs.filter(move |(key, _)| *key == name).map(|(_, value)| value.replace('+', "%20"))
}

/// Returns true if a path belongs to integresql's API.
pub(crate) fn is_integresql(path: &str) -> bool {
    path.starts_with("/api/v1/")
}

/// Normalizes a path for the routes, because clients can percent-encode any character in a path.
pub(crate) fn normalize(mut request: Request) -> Request {
    let uri = request.uri();
    let parts: Option<Vec<_>> = uri.path().split('/').map(decode).collect();
    if let Some(parts) = parts.filter(|_| uri.path().contains('%')) {
        let parts: Vec<_> = parts.iter().map(|part| percent_encode(part).to_string()).collect();
        let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let mut changed = uri.clone().into_parts();
        changed.path_and_query = (parts.join("/") + &query).parse().ok();
        if let Ok(uri) = Uri::from_parts(changed) {
            *request.uri_mut() = uri;
        }
    }
    request
}

/// Rejects a path if any of its parts can't be a name.
pub(crate) async fn check(request: Request) -> Result<Request, Problem> {
    let unreadable = |why| {
        Problem::new(
            StatusCode::BAD_REQUEST,
            ErrorCode::InvalidText,
            format!("cannot read the path: it {why}"),
        )
    };
    match decode(request.uri().path()) {
        None => Err(unreadable("is not percent-encoded UTF-8")),
        Some(path) if path.contains('\0') => Err(unreadable("has a zero byte")
            .hint(Remedy::CorrectValue, "Names in PostgreSQL cannot contain zero bytes.")),
        Some(_) => Ok(request),
    }
}

/// Decodes percent-encoding. Returns `None` if the encoding is invalid or the result isn't UTF-8. Source: RFC 3986,
/// 2.1.
fn decode(text: &str) -> Option<Cow<'_, str>> {
    // Check this first, because `percent_encoding` would accept a % that doesn't begin an escape.
    let is_escape =
        |rest: &str| rest.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    let is_encoded = text.split('%').skip(1).all(is_escape);
    percent_decode_str(text).decode_utf8().ok().filter(|_| is_encoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plus_in_query_is_a_space() {
        let uri: Uri = "/v1/databases/a?test=a+b%2Bc&time=2+s".parse().unwrap();
        assert_eq!(query_lossily(&uri, "test").unwrap(), "a b+c");
        assert_eq!(query(&uri, "time").unwrap(), "2 s");
    }
}
