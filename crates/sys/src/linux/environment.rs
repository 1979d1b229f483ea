//! Environment variables that children must not inherit.

use std::env;
use std::ffi::OsString;
use std::fs;

/// Returns a variable and removes it from our environment, so that children do not inherit it.
///
/// Call it at the start of `main`. The variable stays if other threads run or if `/proc` is not readable. Our user and
/// root can still see the initial environment in `/proc`.
#[must_use]
pub fn take_variable(name: &str) -> Option<OsString> {
    let value = env::var_os(name)?;
    let alone = fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1);
    if alone {
        // SAFETY: no other thread exists that could read or write the environment at the same time.
        #[allow(unsafe_code)]
        unsafe {
            env::remove_var(name);
        }
    }
    Some(value)
}
