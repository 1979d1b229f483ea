//! Implements functions with calls that both Linux and macOS have.

pub(crate) mod child;
pub(crate) mod directory;
pub(crate) mod environment;
pub(crate) mod filesystem;
pub(crate) mod handle;
pub(crate) mod holders;
pub(crate) mod holes;
pub(crate) mod identity;
pub(crate) mod loopback_peer;
pub(crate) mod machine;
pub(crate) mod open_file_limit;
pub(crate) mod permissions;
pub(crate) mod poll;
pub(crate) mod polled_directory;
mod polled_process;
pub(crate) mod polling;
pub(crate) mod process_facts;
pub(crate) mod segments;
pub(crate) mod socket;
pub(crate) mod terminal;
pub(crate) mod umask;
pub(crate) mod unbuffered;
