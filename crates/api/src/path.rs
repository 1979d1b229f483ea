//! Paths and queries of requests.

use hyper::http::request::Parts;

/// The value of a parameter of the query, decoded.
pub(crate) fn query(parts: &Parts, name: &str) -> Option<String> {
    let pairs = parts.uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
    pairs.filter(|(key, _)| *key == name).find_map(|(_, value)| decode(value))
}

/// Whether a path belongs to integresql's API.
pub(crate) fn is_integresql(path: &str) -> bool {
    path.starts_with("/api/v1/")
}

/// Undoes percent-encoding; `None` if it is none, or not of UTF-8. Source: RFC 3986, 2.1.
pub(crate) fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            bytes.push(u8::try_from(digit()? << 4 | digit()?).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}
