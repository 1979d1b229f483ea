//! The server's side of SCRAM-SHA-256 authentication. The client and pgfresh prove to each other that they
//! know the secret, without ever sending it.
//!
//! ```text
//! server  AuthenticationSASL           SCRAM-SHA-256-PLUS, SCRAM-SHA-256
//! client  SASLInitialResponse          n,,n=USER,r=NONCE
//! server  AuthenticationSASLContinue   r=NONCE+SERVER,s=SALT,i=4096
//! client  SASLResponse                 c=biws,r=NONCE+SERVER,p=PROOF
//! server  AuthenticationSASLFinal      v=SIGNATURE
//! ```
//! Over TLS, the client can bind the exchange to the server's certificate (SCRAM-SHA-256-PLUS). The client's
//! first message then starts with `p=tls-server-end-point,,`, and its proof is valid only with this
//! certificate.
//!
//! Source: RFC 5802, RFC 5929, RFC 7677; the manual's chapter on SASL authentication.

use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::ErrorResponse;
use crate::frame::{HEADER, encode, until_zero};
use crate::message::answer_length;

/// PostgreSQL's default for `scram_iterations`. A single iteration would be enough for a random secret, but
/// clients require more.
const ITERATIONS: u32 = 4096;
const MECHANISM: &[u8] = b"SCRAM-SHA-256";
/// The mechanism that binds the exchange to the server's certificate.
const BOUND_MECHANISM: &[u8] = b"SCRAM-SHA-256-PLUS";
/// The start of the client's first message if it uses the bound mechanism.
const BOUND_HEADER: &str = "p=tls-server-end-point,,";
/// Maximum length of a client's message, in bytes.
const LONGEST: usize = 4096;

type Key = [u8; 32];

/// The keys that pgfresh uses to check a client's proof. The secret can't be computed from them.
#[derive(Clone)]
pub struct Verifier {
    salt: [u8; 16],
    stored: Key,
    server: Key,
}

/// An exchange after the client's first message.
pub struct Exchange<'a> {
    verifier: &'a Verifier,
    /// The binding that the client has to repeat in its last message, in base64: the start of the client's
    /// first message and the certificate's digest.
    binding: String,
    nonce: String,
    /// The first messages of both sides, in the form that the proofs sign.
    signed: String,
}

impl Verifier {
    /// Derives the keys from `secret`, which must be ASCII. This takes a few milliseconds.
    #[must_use]
    pub fn new(secret: &str, salt: [u8; 16]) -> Self {
        let mut block = sign(secret.as_bytes(), &[&salt[..], &1_u32.to_be_bytes()]);
        let mut salted = block;
        for _ in 1..ITERATIONS {
            block = sign(secret.as_bytes(), &[&block]);
            salted.iter_mut().zip(block).for_each(|(sum, byte)| *sum ^= byte);
        }
        let client = sign(&salted, &[b"Client Key"]);
        Self { salt, stored: Sha256::digest(client).into(), server: sign(&salted, &[b"Server Key"]) }
    }

    /// Parses the client's first message and returns the server's response. `nonce`, the server's part of the
    /// nonce, must be fresh and printable. `certificate` is the digest of the server's certificate, or `None`
    /// if there is no channel binding.
    ///
    /// # Errors
    /// Returns the response for the client (`08P01`) if the message is malformed, names another mechanism, or
    /// disagrees with the offer of channel binding.
    pub fn begin(
        &self,
        message: &[u8],
        nonce: &str,
        certificate: Option<&[u8]>,
    ) -> Result<(Exchange<'_>, Vec<u8>), ErrorResponse> {
        let malformed = || ErrorResponse::violation("malformed SCRAM message");
        let invalid = || ErrorResponse::violation("client selected an invalid SASL authentication mechanism");
        let (mechanism, response) = until_zero(message).ok_or_else(invalid)?;
        // The GS2 header must not contain an authorization identity. Without channel binding, the header's
        // flag is n, or y if the client thinks that the server doesn't offer channel binding.
        let (headers, bound_to): (&[&str], &[u8]) = match (mechanism, certificate) {
            (MECHANISM, None) => (&["n,,", "y,,"], b""),
            // If the server offered channel binding and the client still sends y, someone in between
            // removed the offer.
            (MECHANISM, Some(_)) => (&["n,,"], b""),
            (BOUND_MECHANISM, Some(digest)) => (&[BOUND_HEADER], digest),
            _ => return Err(invalid()),
        };
        let text = response.get(4..).and_then(|text| std::str::from_utf8(text).ok()).ok_or_else(malformed)?;
        let header = headers.iter().find(|header| text.starts_with(**header)).ok_or_else(malformed)?;
        let bare = &text[header.len()..];
        let theirs =
            bare.split(',').find_map(|part| part.strip_prefix("r=")).filter(|theirs| !theirs.is_empty());
        let nonce = format!("{}{nonce}", theirs.ok_or_else(malformed)?);
        let answer = format!("r={nonce},s={},i={ITERATIONS}", STANDARD.encode(self.salt));
        let signed = format!("{bare},{answer}");
        let binding = STANDARD.encode([header.as_bytes(), bound_to].concat());
        let exchange = Exchange { verifier: self, binding, nonce, signed };
        Ok((exchange, authentication(11, answer.as_bytes())))
    }
}

impl Exchange<'_> {
    /// Checks the client's proof and returns the server's proof, or `None` if the client has a different
    /// secret.
    ///
    /// # Errors
    /// Returns the response for the client (`08P01`) if the message is malformed, or if the client is
    /// connected to another certificate than ours.
    pub fn finish(self, message: &[u8]) -> Result<Option<Vec<u8>>, ErrorResponse> {
        let malformed = || ErrorResponse::violation("malformed SCRAM message");
        let text = std::str::from_utf8(message).map_err(|_| malformed())?;
        let (rest, proof) = text.rsplit_once(",p=").ok_or_else(malformed)?;
        let (binding, nonce) =
            rest.strip_prefix("c=").and_then(|rest| rest.split_once(",r=")).ok_or_else(malformed)?;
        if nonce != self.nonce {
            return Err(malformed());
        }
        // The client has seen a different certificate, so its connection doesn't lead directly to this
        // server.
        if binding != self.binding {
            return Err(ErrorResponse::violation("SCRAM channel binding check failed"));
        }
        let proof: Key =
            STANDARD.decode(proof).ok().and_then(|proof| proof.try_into().ok()).ok_or_else(malformed)?;
        let signed = format!("{},{rest}", self.signed);
        let mut key = sign(&self.verifier.stored, &[signed.as_bytes()]);
        key.iter_mut().zip(proof).for_each(|(byte, proof)| *byte ^= proof);
        // Compare digests, which takes the same time for every wrong proof.
        let right = blake3::hash(&Sha256::digest(key)) == blake3::hash(&self.verifier.stored);
        let signature = sign(&self.verifier.server, &[signed.as_bytes()]);
        Ok(right.then(|| authentication(12, format!("v={}", STANDARD.encode(signature)).as_bytes())))
    }
}

/// Encodes the message that starts an exchange, with or without an offer of channel binding.
#[must_use]
pub fn sasl_request(offers_binding: bool) -> Vec<u8> {
    let bound: &[&[u8]] = if offers_binding { &[BOUND_MECHANISM, b"\0"] } else { &[] };
    authentication(10, &[bound.concat(), MECHANISM.to_vec(), b"\0\0".to_vec()].concat())
}

/// Parses a SASL response at the start of `bytes`. Returns the content's range and the message's length, or
/// `None` if the message is incomplete.
///
/// # Errors
/// Returns the response for the client (`08P01`) if the message has another type, or if its length is out of
/// bounds.
pub fn sasl_response(bytes: &[u8]) -> Result<Option<(Range<usize>, usize)>, ErrorResponse> {
    let Some(end) =
        answer_length(bytes, "SASL response", HEADER..=LONGEST, "invalid length of SASL response")?
    else {
        return Ok(None);
    };
    Ok((bytes.len() >= end).then_some((HEADER..end, end)))
}

/// Encodes an Authentication message.
fn authentication(code: u32, content: &[u8]) -> Vec<u8> {
    encode(b'R', &[&code.to_be_bytes(), content].concat())
}

fn sign(key: &[u8], parts: &[&[u8]]) -> Key {
    // HMAC accepts keys of any length.
    let mut hmac = Hmac::<Sha256>::new_from_slice(key).unwrap_or_else(|_| unreachable!());
    for part in parts {
        hmac.update(part);
    }
    hmac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(message: &[u8]) -> &str {
        std::str::from_utf8(&message[9..]).unwrap()
    }

    fn initial(text: &str) -> Vec<u8> {
        chosen(MECHANISM, text)
    }

    fn chosen(mechanism: &[u8], text: &str) -> Vec<u8> {
        [mechanism, b"\0", &u32::try_from(text.len()).unwrap().to_be_bytes(), text.as_bytes()].concat()
    }

    /// The example in RFC 7677, section 3, with the user "user" and the password "pencil".
    #[test]
    fn the_standards_own_example_is_understood() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap().try_into().unwrap();
        let verifier = Verifier::new("pencil", salt);
        let first = initial("n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let (exchange, answer) = verifier.begin(&first, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", None).unwrap();
        assert_eq!(
            content(&answer),
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        );
        let last = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        let proof = exchange.finish(last.as_bytes()).unwrap().unwrap();
        assert_eq!(content(&proof), "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    }

    #[test]
    fn wrong_secrets_and_invalid_messages_are_refused() {
        let salt = [7; 16];
        let (right, wrong) = (Verifier::new("right", salt), Verifier::new("wrong", salt));
        let first = initial("y,,n=,r=abc");
        let (theirs, _) = wrong.begin(&first, "def", None).unwrap();
        let (ours, _) = right.begin(&first, "def", None).unwrap();
        let mut key =
            sign(&theirs.verifier.stored, &[format!("{},c=eSws,r=abcdef", theirs.signed).as_bytes()]);
        key[0] ^= 1;
        let last = format!("c=eSws,r=abcdef,p={}", STANDARD.encode(key));
        assert_eq!(ours.finish(last.as_bytes()).unwrap(), None);
        for first in ["p=tls-unique,,n=,r=abc", "n,,n=,r=", "n,a=x,n=,r=abc", ""] {
            assert!(right.begin(&initial(first), "def", None).is_err(), "{first}");
        }
        assert!(right.begin(b"PLAIN\0", "def", None).is_err());
        for last in ["", "c=biws,r=abc,p=AAAA", "c=eSws,r=abcdef,p=AAAA", "c=eSws,r=abcdef"] {
            let (exchange, _) = right.begin(&first, "def", None).unwrap();
            assert!(exchange.finish(last.as_bytes()).is_err(), "{last}");
        }
    }

    /// Returns the last message of a client that knows the secret of `verifier` and has seen `certificate`.
    fn last(
        verifier: &Verifier,
        exchange: &Exchange<'_>,
        client: Key,
        header: &str,
        certificate: &[u8],
    ) -> String {
        let binding = STANDARD.encode([header.as_bytes(), certificate].concat());
        let rest = format!("c={binding},r={}", exchange.nonce);
        let mut proof = sign(&verifier.stored, &[format!("{},{rest}", exchange.signed).as_bytes()]);
        proof.iter_mut().zip(client).for_each(|(byte, key)| *byte ^= key);
        format!("{rest},p={}", STANDARD.encode(proof))
    }

    #[test]
    fn bound_proofs_hold_for_one_certificate() {
        let client = sign(b"salted", &[b"Client Key"]);
        let verifier = Verifier { salt: [7; 16], stored: Sha256::digest(client).into(), server: [0; 32] };
        let first = chosen(BOUND_MECHANISM, "p=tls-server-end-point,,n=,r=abc");
        for (seen, admitted) in [(&b"ours"[..], true), (b"theirs", false), (b"", false)] {
            let (exchange, _) = verifier.begin(&first, "def", Some(b"ours")).unwrap();
            let last = last(&verifier, &exchange, client, BOUND_HEADER, seen);
            assert_eq!(exchange.finish(last.as_bytes()).is_ok_and(|proof| proof.is_some()), admitted);
        }
        // Channel binding requires a certificate. If the server has one, a client must not claim that it
        // didn't offer channel binding.
        assert!(verifier.begin(&first, "def", None).is_err());
        assert!(verifier.begin(&initial("y,,n=,r=abc"), "def", Some(b"ours")).is_err());
        assert!(verifier.begin(&initial("p=tls-server-end-point,,n=,r=abc"), "def", Some(b"ours")).is_err());
        assert!(verifier.begin(&chosen(BOUND_MECHANISM, "n,,n=,r=abc"), "def", Some(b"ours")).is_err());
        let (exchange, _) = verifier.begin(&initial("n,,n=,r=abc"), "def", Some(b"ours")).unwrap();
        let last = last(&verifier, &exchange, client, "n,,", b"");
        assert!(exchange.finish(last.as_bytes()).unwrap().is_some());
    }
}
