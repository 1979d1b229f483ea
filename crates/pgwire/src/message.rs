//! Messages that pgfresh itself parses or sends.

use std::ops::{Range, RangeInclusive};

use crate::ErrorResponse;
use crate::frame::{Frame, HEADER, encode};
use crate::startup::CANCEL;

/// The response that declines encryption.
pub const NOT_ENCRYPTED: &[u8] = b"N";
/// The response that accepts TLS. The TLS handshake follows.
pub const ENCRYPTED: &[u8] = b"S";
/// Asks the client for a clear-text password.
pub const PASSWORD_REQUEST: &[u8] = b"R\0\0\0\x08\0\0\0\x03";
/// Ends the session.
pub const TERMINATE: &[u8] = b"X\0\0\0\x04";
/// A query that resets a session's settings and temporary objects.
pub const DISCARD_ALL: &[u8] = b"Q\0\0\0\x10DISCARD ALL\0";

/// Maximum length of a password that pgfresh accepts, in bytes. pgfresh's own secrets are far shorter.
const LONGEST_PASSWORD: usize = 4096;

/// Parses a `PasswordMessage` at the start of `bytes`. Returns the password's range and the message's length,
/// or `None` if the message is incomplete.
///
/// # Errors
/// Returns the response for the client (`08P01`) if the message has another type, its length is out of
/// bounds, or its text doesn't end with a zero byte.
pub fn password(bytes: &[u8]) -> Result<Option<(Range<usize>, usize)>, ErrorResponse> {
    let bounds = HEADER + 1..=LONGEST_PASSWORD;
    let Some(end) = answer_length(bytes, "password response", bounds, "invalid length of password packet")?
    else {
        return Ok(None);
    };
    match bytes.get(end - 1) {
        None => Ok(None),
        Some(0) => Ok(Some((HEADER..end - 1, end))),
        Some(_) => Err(ErrorResponse::violation("invalid password packet: expected terminator as last byte")),
    }
}

/// Returns the length of the `p` message at the start of `bytes`, which can contain a password or a SASL
/// response. Returns `None` if the header is incomplete.
pub(crate) fn answer_length(
    bytes: &[u8],
    what: &str,
    bounds: RangeInclusive<usize>,
    out_of_bounds: &'static str,
) -> Result<Option<usize>, ErrorResponse> {
    match bytes.first() {
        Some(b'p') | None => {}
        Some(tag) => {
            return Err(ErrorResponse::violation(format!("expected {what}, got message type {tag}")));
        }
    }
    match Frame::header(bytes) {
        Ok(None) => Ok(None),
        Ok(Some((_, length))) if bounds.contains(&length) => Ok(Some(length)),
        _ => Err(ErrorResponse::violation(out_of_bounds)),
    }
}

/// Returns the range of the cancel key in a server's startup response, which must be complete. The key
/// consists of the process id (4 bytes) and a secret. Returns `None` if the response contains no key, in
/// which case clients can't cancel queries.
#[must_use]
pub fn cancel_key(startup_response: &[u8]) -> Option<Range<usize>> {
    let mut at = 0;
    loop {
        let (frame, length) = Frame::first(&startup_response[at..]).ok()??;
        if frame.tag == b'K' && frame.body.len() > 4 {
            return Some(at + HEADER..at + length);
        }
        at += length;
    }
}

/// Encodes a CancelRequest for a process id and a secret.
#[must_use]
pub fn cancel_request(key: &[u8]) -> Vec<u8> {
    let length = u32::try_from(8 + key.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes(), &CANCEL.to_be_bytes(), key].concat()
}

/// Returns true if a client may send a frame with this tag during a session. Source: `SocketBackend`.
#[must_use]
pub fn is_frontend_tag(tag: u8) -> bool {
    b"QFPBEDCSHXdcf".contains(&tag)
}

/// Encodes a Query message that runs `sql`.
#[must_use]
pub fn query(sql: &[u8]) -> Vec<u8> {
    encode(b'Q', &[sql, b"\0"].concat())
}

/// Returns the values in the body of a `DataRow`, with `None` for NULL. The iterator stops if the body is
/// malformed.
pub fn columns(row: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let mut rest = row.get(2..).unwrap_or_default();
    std::iter::from_fn(move || {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let (value, after) = match usize::try_from(i32::from_be_bytes(*length)) {
            Ok(length) => {
                let (value, after) = after.split_at_checked(length)?;
                (Some(value), after)
            }
            Err(_) => (None, after),
        };
        rest = after;
        Some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_ends_at_the_zero_byte() {
        assert_eq!(password(b"p\0\0\0\x08abc\0rest"), Ok(Some((5..8, 9))));
        assert_eq!(password(b"p\0\0\0\x05\0"), Ok(Some((5..5, 6))));
        for bytes in [&b"Q"[..], b"p\0\0\0\x04", b"p\xff\xff\xff\xff", b"p\0\x01\0\0", b"p\0\0\0\x06ab"] {
            assert!(password(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn the_key_is_found_at_any_length() {
        for secret in [4, 32, 256] {
            let body = vec![9; 4 + secret];
            let length = u32::try_from(4 + body.len()).unwrap().to_be_bytes();
            let ready = b"Z\0\0\0\x05I";
            let startup_response = [b"R\0\0\0\x08\0\0\0\0K", &length[..], &body, ready].concat();
            assert_eq!(cancel_key(&startup_response), Some(14..14 + 4 + secret));
        }
        for none in [&b""[..], b"Z\0\0\0\x05I", b"K\0\0\0\x08abcd", b"K\0\0\0\xffabcdefgh", b"S\0\0\0\0K"] {
            assert_eq!(cancel_key(none), None, "{none:?}");
        }
    }
}
