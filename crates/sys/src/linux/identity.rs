//! Who we are.

use std::ffi::CStr;
use std::path::Path;

/// The number of the user whose rights we have.
#[must_use]
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The number of the group whose rights we have.
#[must_use]
pub fn group() -> u32 {
    rustix::process::getegid().as_raw()
}

/// Where our own program is, whatever has become of its file.
#[must_use]
pub fn this_program() -> &'static Path {
    Path::new("/proc/self/exe")
}

/// Has `ps` call this process `name`, of which 15 bytes are shown. By the path of [`this_program`] it would be "exe".
#[expect(clippy::let_underscore_must_use, reason = "a name that is not set is no reason to stop")]
pub fn set_process_name(name: &CStr) {
    let _ = rustix::thread::set_name(name);
}

/// Whether we have all rights.
#[must_use]
pub fn is_root() -> bool {
    user() == 0
}
