//! Linux implementation of the crate's interface.

pub(crate) mod boot;
pub(crate) mod directory;
pub(crate) mod directory_watch;
pub(crate) mod disk;
pub(crate) mod environment;
#[cfg(test)]
mod fake_machine;
pub(crate) mod filesystem;
pub(crate) mod handle;
pub(crate) mod holes;
pub(crate) mod identity;
pub(crate) mod loopback_peer;
pub(crate) mod machine;
pub(crate) mod memory;
pub(crate) mod mount;
pub(crate) mod namespace;
pub(crate) mod nvme;
pub(crate) mod open_file_limit;
pub(crate) mod permissions;
pub(crate) mod pipe;
pub(crate) mod poll;
mod polled_process;
mod polling;
pub(crate) mod posix_memory;
pub(crate) mod process;
pub(crate) mod process_info;
pub(crate) mod random;
pub(crate) mod readings;
pub(crate) mod shortage;
pub(crate) mod socket;
pub(crate) mod socket_diag;
pub(crate) mod storage_stack;
pub(crate) mod system_v_memory;
pub(crate) mod terminal;
pub(crate) mod transfer;
pub(crate) mod umask;
pub(crate) mod unbuffered;
