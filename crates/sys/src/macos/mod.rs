//! Leaf calls of macOS, and its process notifications. Each function has a safe answer for the case that its system
//! call fails or has no answer.
//!
//! No test on Linux runs them. `docs/porting.md` lists each function with the test that runs the code above it.

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
