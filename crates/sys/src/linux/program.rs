//! Finds this process's executable, and sets the process's name.

use std::ffi::{CStr, OsStr};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::refusals::note_refusal;

/// A link that the kernel provides to our own executable.
const LINK: &str = "/proc/self/exe";

/// Returns a path to our own executable. It works even if the file has been replaced or removed, but without `/proc`,
/// it is the path by which this process was started.
#[must_use]
pub fn this_program() -> &'static Path {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| match fs::read_link(LINK) {
        Ok(_) => LINK.into(),
        Err(error) => {
            note_refusal("/proc", &error);
            started_path().unwrap_or_else(|_| LINK.into())
        }
    });
    &PROGRAM
}

/// Returns the path that the kernel ran as our executable. Source: getauxval(3), `AT_EXECFN`.
#[allow(unsafe_code)]
fn started_path() -> io::Result<PathBuf> {
    // SAFETY: getauxval has no preconditions.
    let path = unsafe { libc::getauxval(libc::AT_EXECFN) } as *const libc::c_char;
    if path.is_null() {
        return Err(io::ErrorKind::NotFound.into());
    }
    // SAFETY: the kernel put a path that ends with a zero byte there, and nothing changes it.
    fs::canonicalize(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()))
}

/// Sets the process name that `ps` shows, truncated to 15 bytes. Otherwise, a process started through
/// [`this_program`] would be called "exe".
#[expect(clippy::let_underscore_must_use, reason = "a name that is not set is no reason to stop")]
pub fn set_process_name(name: &CStr) {
    let _ = rustix::thread::set_name(name);
}
