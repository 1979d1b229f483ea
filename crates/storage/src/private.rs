//! Directories in which nobody but us can put anything.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use crate::attempt::{Attempt, FileError};

/// Makes `path` with `mode` if it is not there, and makes sure that it is a directory of ours that nobody else can
/// write in: in a shared directory like `/tmp` somebody may have been there before us.
pub(crate) fn ensure(path: &Path, mode: u32) -> Result<(), FileError> {
    match DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(error).attempt("create", path);
        }
        _ => {}
    }
    let meta = path.symlink_metadata().attempt("examine", path)?;
    let ours = meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o022 == 0;
    if ours {
        Ok(())
    } else {
        let why = "it is not a directory of ours, or others may write in it";
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why)).attempt("use", path)
    }
}

/// The mode of a directory that holds run directories: the server account of root must be able to pass through.
pub(crate) fn passable() -> u32 {
    if rustix::process::geteuid().is_root() { 0o711 } else { 0o700 }
}

/// Whether `path` is there at all; if it is, it must be as [`ensure`] leaves it.
pub(crate) fn ensure_existing(path: &Path) -> Result<bool, FileError> {
    if path.symlink_metadata().is_err() {
        return Ok(false);
    }
    ensure(path, passable())?;
    Ok(true)
}
