//! Identity of this process.

use std::ffi::CStr;
use std::path::Path;

/// Returns the effective uid.
#[must_use]
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns the effective gid.
#[must_use]
pub fn group() -> u32 {
    rustix::process::getegid().as_raw()
}

/// Returns a path to our own executable that works even after its file was replaced or removed.
#[must_use]
pub fn this_program() -> &'static Path {
    Path::new("/proc/self/exe")
}

/// Sets the process name that `ps` shows, truncated to 15 bytes. Without it, a start by [`this_program`] would show as
/// "exe".
#[expect(clippy::let_underscore_must_use, reason = "a name that is not set is no reason to stop")]
pub fn set_process_name(name: &CStr) {
    let _ = rustix::thread::set_name(name);
}

/// Whether the effective user is root.
#[must_use]
pub fn is_root() -> bool {
    user() == 0
}
