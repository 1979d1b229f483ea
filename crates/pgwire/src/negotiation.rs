//! Protocol negotiation with clients that request a newer version. A server negotiates before it asks for a
//! password.

use crate::frame::{Frame, encode, frames, split_zero};
use crate::{ErrorResponse, StartupParams};

/// Protocol versions that a server supports.
#[derive(Debug, Clone, Copy)]
pub struct SupportedProtocols {
    /// Whether the server supports protocol 2.0. The gateway never does.
    pub two: bool,
    /// The newest version, in the format of startup messages.
    pub newest: u32,
}

/// Returns a server's `NegotiateProtocolVersion` response to these parameters, or `None` if the server doesn't send
/// one. `newest` is the server's newest protocol version, in the format of startup messages. Source:
/// `ProcessStartupPacket`.
#[must_use]
pub fn negotiation(params: &StartupParams, newest: u32) -> Option<Vec<u8>> {
    let version = params.version().min(newest);
    // So far, no server supports any protocol extension.
    let names = params.iter().map(|(name, _)| name);
    let unknown: Vec<_> = names.filter(|name| name.starts_with(b"_pq_.")).collect();
    if version == params.version() && unknown.is_empty() {
        return None;
    }
    let count = u32::try_from(unknown.len()).unwrap_or(u32::MAX);
    let mut body = [version.to_be_bytes(), count.to_be_bytes()].concat();
    for name in unknown {
        body.extend([name, b"\0"].concat());
    }
    Some(encode(b'v', &body))
}

/// Returns a server's error for an unsupported protocol version. Source: `ProcessStartupPacket`.
#[must_use]
pub fn unsupported_protocol(version: u32, supported: SupportedProtocols) -> Vec<u8> {
    let (asked, minor, newest) = (version >> 16, version & 0xffff, supported.newest & 0xffff);
    let oldest = if supported.two && asked != 2 { 2 } else { 3 };
    let text =
        format!("unsupported frontend protocol {asked}.{minor}: server supports {oldest}.0 to 3.{newest}");
    let error = ErrorResponse::fatal("0A000", text);
    if asked < 3 { error.to_old_bytes() } else { error.to_bytes() }
}

/// Removes the server's own negotiation message from the start of a startup response.
#[must_use]
pub fn without_negotiation(mut startup_response: Vec<u8>) -> Vec<u8> {
    if let Ok(Some((b'v', length))) = Frame::header(&startup_response) {
        startup_response.drain(..startup_response.len().min(length));
    }
    startup_response
}

/// Changes a startup response so that it reports `value` for the setting `name`.
#[must_use]
pub fn with_parameter(startup_response: &[u8], name: &str, value: &str) -> Vec<u8> {
    let status = encode(b'S', [name, "\0", value, "\0"].concat().as_bytes());
    let mut response = Vec::with_capacity(startup_response.len() + status.len());
    for Frame { tag, body } in frames(startup_response) {
        match tag {
            b'S' if split_zero(body).0 == name.as_bytes() => continue,
            b'Z' => response.extend_from_slice(&status),
            _ => {}
        }
        response.extend(encode(tag, body));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Newest protocol versions of `PostgreSQL` up to 17, and of 18.
    const OLD: u32 = 3 << 16;
    const NEW: u32 = 3 << 16 | 2;

    fn kind(minor: u32, parameters: &[u8]) -> StartupParams {
        StartupParams::read(3 << 16 | minor, parameters.to_vec())
    }

    #[test]
    fn the_older_of_both_protocols_is_spoken() {
        assert_eq!(negotiation(&kind(0, b"user\0_pq_.me\0"), OLD), None);
        assert_eq!(negotiation(&kind(2, b"user\0me\0"), NEW), None);
        let older = b"v\0\0\0\x0c\0\x03\0\0\0\0\0\0";
        assert_eq!(negotiation(&kind(2, b"user\0me\0"), OLD).as_deref(), Some(&older[..]));
        let newer = b"v\0\0\0\x0c\0\x03\0\x02\0\0\0\0";
        assert_eq!(negotiation(&kind(9999, b"user\0me\0"), NEW).as_deref(), Some(&newer[..]));
    }

    #[test]
    fn an_extension_that_nobody_knows_is_named() {
        let said = b"v\0\0\0\x13\0\x03\0\0\0\0\0\x01_pq_.x\0";
        assert_eq!(negotiation(&kind(0, b"_pq_.x\0on\0user\0me\0"), NEW).as_deref(), Some(&said[..]));
    }

    #[test]
    fn startup_response_omits_unknown_extension() {
        let ready = b"Z\0\0\0\x05I";
        assert_eq!(without_negotiation([&b"v\0\0\0\x06ab"[..], ready].concat()), ready);
        assert_eq!(without_negotiation(ready.to_vec()), ready);
        assert_eq!(without_negotiation(b"v\0\0\0\x06a".to_vec()), b"");
    }

    #[test]
    fn parameter_is_reported_once() {
        let (status, ready) = (|text: &str| encode(b'S', text.as_bytes()), encode(b'Z', b"I"));
        let other = status("a\0b\0");
        let expected = [other.clone(), status("x\0on\0"), ready.clone()].concat();
        assert_eq!(with_parameter(&[other.clone(), ready.clone()].concat(), "x", "on"), expected);
        let startup_response = [status("x\0off\0"), other, ready].concat();
        assert_eq!(with_parameter(&startup_response, "x", "on"), expected);
    }
}
