//! Names this process's executable.

use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Returns the path of our own executable at the first call. If the file is replaced later, programs started from
/// this path are the new one.
#[must_use]
pub fn this_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    // Without its path, starting the program fails with an error that names this text.
    PROGRAM.get_or_init(|| std::env::current_exe().unwrap_or_else(|_| "pgfresh".into()))
}

/// Changes nothing: `ps` shows the executable's name.
pub fn set_process_name(_name: &CStr) {}
