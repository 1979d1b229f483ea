//! Finds this process's executable.

use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Returns the path that our own executable had at the first call. If another file later has this path, starting the
/// path starts that file.
#[must_use]
pub fn this_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    // If the system doesn't provide the path, use this name. Starting it fails with an error that shows the name.
    PROGRAM.get_or_init(|| std::env::current_exe().unwrap_or_else(|_| "pgfresh".into()))
}

/// Does nothing, so `ps` shows the executable's name.
pub fn set_process_name(_name: &CStr) {}
