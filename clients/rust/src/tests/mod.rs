//! Transcripts, which all clients follow, the end of the binary, and the names of tests.

mod http;
mod lifeline;
mod names;
mod stand_in;
mod transcripts;
