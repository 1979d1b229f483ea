//! Implements the leaf calls of macOS, and its process notifications. If the system call
//! of a function fails or doesn't provide the fact, the function returns a safe default.
//!
//! Tests on Linux can't run these functions. `docs/porting.md`
//! lists each function with the test that runs the code above it.

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
