//! Leaf calls that only macOS has. Each has a safe answer for the case that it fails or doesn't know.
//!
//! No test on Linux runs them. `docs/porting.md` lists each one with the test that runs the code above it.

pub(crate) mod boot;
pub(crate) mod clone;
pub(crate) mod connection_table;
pub(crate) mod descriptors;
pub(crate) mod exit_event;
pub(crate) mod mounts;
pub(crate) mod process_table;
pub(crate) mod segment_table;
pub(crate) mod socket_state;
mod structures;
