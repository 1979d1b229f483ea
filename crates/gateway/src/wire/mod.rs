//! The `PostgreSQL` protocol as far as a gateway has to know it; no input or output happens here.
//!
//! ```text
//! opening   length:4 code:4 …                     SSLRequest, GSSENCRequest, CancelRequest, StartupMessage
//! message   tag:1 length:4 body:length-4          everything after that, in both directions
//! ```
//!
//! Source: the manual's chapter "Frontend/Backend Protocol", 3.0 and 3.2.

mod conversation;
mod message;
mod opening;
mod options;
mod refusal;

pub(crate) use conversation::Conversation;
pub(crate) use message::{
    DISCARD_ALL, NOT_ENCRYPTED, PASSWORD_REQUEST, TERMINATE, cancel_request, key_of, password,
};
pub(crate) use opening::{Opening, Startup, opening};
pub(crate) use refusal::Refusal;

/// The number in the first four bytes, if they are there.
fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}
