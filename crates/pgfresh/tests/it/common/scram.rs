//! Client side of SCRAM, for tests that write all other bytes themselves.

use std::io::{Read, Write};

use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};

use super::client::message;

/// Proves to the server on `stream` that the client knows `password`. The server has already
/// received a startup message.
pub(crate) fn prove(stream: &mut (impl Read + Write), password: &str) {
    request(stream, 10);
    let mut scram = ScramSha256::new(password.as_bytes(), ChannelBinding::unsupported());
    let first = scram.message();
    let length = u32::try_from(first.len()).unwrap().to_be_bytes();
    let initial = [SCRAM_SHA_256.as_bytes(), b"\0", &length, first].concat();
    stream.write_all(&message(b'p', &initial)).unwrap();
    scram.update(&request(stream, 11)).unwrap();
    stream.write_all(&message(b'p', scram.message())).unwrap();
    scram.finish(&request(stream, 12)).unwrap();
}

/// Reads an authentication request with the code `code`. Returns the bytes after the code.
fn request(stream: &mut impl Read, code: u8) -> Vec<u8> {
    let mut header = [0; 9];
    stream.read_exact(&mut header).unwrap();
    assert_eq!((header[0], header[8]), (b'R', code), "{header:?}");
    let length = u32::from_be_bytes(header[1..5].try_into().unwrap()) as usize;
    let mut body = vec![0; length - 8];
    stream.read_exact(&mut body).unwrap();
    body
}
