//! Transcripts, which all clients follow, the end of the binary, and the names of tests.

mod http;
mod lifeline;
mod names;
#[cfg(feature = "tls")]
mod remote;
mod stand_in;
mod transcripts;
