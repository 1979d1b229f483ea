//! What children must not inherit.

use std::env;
use std::ffi::OsString;
use std::fs;

/// Takes a variable out of our environment, so that nothing that we start inherits it. It is for the start of `main`: once other
/// threads run, or where `/proc` does not tell that none do, the variable stays there.
///
/// What we were started with remains visible in `/proc` to our user and to root.
#[must_use]
pub fn take_variable(name: &str) -> Option<OsString> {
    let value = env::var_os(name)?;
    let alone = fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1);
    if alone {
        // SAFETY: no other thread is there that could read or write the environment meanwhile.
        #[allow(unsafe_code)]
        unsafe {
            env::remove_var(name);
        }
    }
    Some(value)
}
