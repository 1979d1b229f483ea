//! Who we are.

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

/// Whether we have all rights.
#[must_use]
pub fn is_root() -> bool {
    user() == 0
}
