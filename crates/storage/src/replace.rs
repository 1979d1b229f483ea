//! Replaces a file atomically. A reader sees either the old text or the new one, never a partial file.

use std::fs;
use std::io;
use std::path::Path;

use crate::file_error::{Attempt, FileError};

/// Writes `text` to a file with a random name, then renames that file to `path`.
pub(crate) fn replace_file(path: &Path, text: &str) -> Result<(), FileError> {
    let staging = path.with_added_extension(random_name()?);
    let written = fs::write(&staging, text).attempt("write", &staging);
    let replaced = written.and_then(|()| fs::rename(&staging, path).attempt("rename", path));
    if replaced.is_err() {
        let removed = fs::remove_file(&staging);
        tracing::debug!(?removed, path = %staging.display(), "could not replace a file");
    }
    replaced
}

/// Returns a random name of eight hex digits.
pub(crate) fn random_name() -> Result<String, FileError> {
    let mut bytes = [0; 4];
    sys::fill_random(&mut bytes).attempt("read", Path::new("/dev/urandom"))?;
    Ok(format!("{:08x}", u32::from_ne_bytes(bytes)))
}

/// Turns an error into success if the cache is read-only.
pub(crate) fn ignore_read_only(tried: Result<(), FileError>) -> Result<(), FileError> {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    match tried {
        Err(error) if matches!(error.kind(), ReadOnlyFilesystem | PermissionDenied) => Ok(()),
        other => other,
    }
}
