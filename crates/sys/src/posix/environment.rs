//! Removes environment variables that child processes must not inherit, e.g. secrets.

use std::env;
use std::ffi::OsString;

use crate::host;

/// Removes an environment variable from our environment, so that child processes don't inherit it, and
/// returns its value.
///
/// Call this at the start of `main`. The variable stays if other threads are running, or if the system
/// can't tell. Our own user and root can still read the initial environment in the process table.
#[must_use]
pub fn take_variable(name: &str) -> Option<OsString> {
    let value = env::var_os(name)?;
    if host::is_only_thread() {
        // SAFETY: no other thread exists that could read or modify the environment at the same time.
        #[allow(unsafe_code)]
        unsafe {
            env::remove_var(name);
        }
    }
    Some(value)
}
