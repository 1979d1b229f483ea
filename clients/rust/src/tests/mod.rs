//! The client does what the transcripts say that all clients do, and pgfresh ends with it.

mod http;
mod lifeline;
mod names;
mod stand_in;
mod transcripts;
