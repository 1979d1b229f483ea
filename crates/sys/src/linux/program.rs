//! Finds this process's executable, and sets the process's name.

use std::ffi::CStr;
use std::path::Path;

/// Returns a path to our own executable. It works even if the file has been replaced or removed.
#[must_use]
pub fn this_program() -> &'static Path {
    Path::new("/proc/self/exe")
}

/// Sets the process name that `ps` shows, truncated to 15 bytes. Otherwise, a process started through
/// [`this_program`] would be called "exe".
#[expect(clippy::let_underscore_must_use, reason = "a name that is not set is no reason to stop")]
pub fn set_process_name(name: &CStr) {
    let _ = rustix::thread::set_name(name);
}
