//! Tests the transcripts that all clients follow, the end of the binary, and the test names.

mod http;
mod lifeline;
mod names;
#[cfg(feature = "tls")]
mod remote;
mod stand_in;
mod transcripts;
