//! The few messages that a gateway reads or says itself.

use std::ops::Range;

use super::opening::CANCEL;
use super::{Refusal, number};

/// The answer to a request for encryption.
pub(crate) const NOT_ENCRYPTED: &[u8] = b"N";
/// The request for a password in the clear.
pub(crate) const PASSWORD_REQUEST: &[u8] = b"R\0\0\0\x08\0\0\0\x03";
/// Terminate.
pub(crate) const TERMINATE: &[u8] = b"X\0\0\0\x04";
/// A query that makes a session forget all that it was told.
pub(crate) const DISCARD_ALL: &[u8] = b"Q\0\0\0\x10DISCARD ALL\0";

/// The longest password that may be right: a secret is far shorter.
const LONGEST_PASSWORD: usize = 4096;

/// Reads a `PasswordMessage` from the beginning of `bytes`. Returns where the password is, and the length of the whole;
/// `None` if it is not complete yet.
pub(crate) fn password(bytes: &[u8]) -> Result<Option<(Range<usize>, usize)>, Refusal> {
    let Some(tag) = bytes.first() else { return Ok(None) };
    if *tag != b'p' {
        return Err(Refusal::violation(format!("expected password response, got message type {tag}")));
    }
    let Some(length) = number(&bytes[1..]) else { return Ok(None) };
    let end = length as usize + 1;
    if !(6..=LONGEST_PASSWORD).contains(&end) {
        return Err(Refusal::violation("invalid length of password packet"));
    }
    match bytes.get(end - 1) {
        None => Ok(None),
        Some(0) => Ok(Some((5..end - 1, end))),
        Some(_) => Err(Refusal::violation("invalid password packet: expected terminator as last byte")),
    }
}

/// Where in a greeting the cancel key is: process id (4 bytes) and secret. A greeting is what the server says until it
/// is ready, complete messages all; one without a key is from a server that cannot be interrupted.
pub(crate) fn key_of(greeting: &[u8]) -> Option<Range<usize>> {
    let mut at = 0;
    loop {
        let length = number(greeting.get(at + 1..)?)? as usize;
        let end = at + 1 + length.max(4);
        if greeting[at] == b'K' && end > at + 9 && end <= greeting.len() {
            return Some(at + 5..end);
        }
        at = end;
    }
}

/// The CancelRequest for a process id and secret.
pub(crate) fn cancel_request(key: &[u8]) -> Vec<u8> {
    let length = u32::try_from(8 + key.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes(), &CANCEL.to_be_bytes(), key].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_what_lies_between_header_and_zero() {
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
            let greeting = [b"R\0\0\0\x08\0\0\0\0K", &length[..], &body, ready].concat();
            assert_eq!(key_of(&greeting), Some(14..14 + 4 + secret));
        }
        for none in [&b""[..], b"Z\0\0\0\x05I", b"K\0\0\0\x08abcd", b"K\0\0\0\xffabcdefgh", b"S\0\0\0\0K"] {
            assert_eq!(key_of(none), None, "{none:?}");
        }
    }
}
