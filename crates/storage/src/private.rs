//! Creates and checks directories that only our own user can write to. Otherwise, other users could replace a
//! server's files.

use std::fs::{DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use sys::Directory;

use crate::file_error::{Attempt, FileError};

/// Creates `path` with `mode` if it doesn't exist. Returns an error if the directory isn't ours or if other
/// users can write to it: in a shared directory such as `/tmp`, another user could have created it first.
pub(crate) fn ensure(path: &Path, mode: u32) -> Result<(), FileError> {
    loop {
        let created = match DirBuilder::new().mode(mode).create(path) {
            Ok(()) => set_mode(path, mode),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => return Err(error).attempt("create", path),
        };
        match created.and_then(|()| path.symlink_metadata()) {
            // A sweep can remove the empty directory between the two calls.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            meta => return check(path, &meta.attempt("use", path)?),
        }
    }
}

/// Sets a new directory's mode explicitly, because the umask may have cleared some of its bits.
fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    Directory::open(path)?.set_mode(mode)
}

fn check(path: &Path, meta: &Metadata) -> Result<(), FileError> {
    if !meta.is_dir() {
        return Err(io::Error::from(io::ErrorKind::NotADirectory)).attempt("use", path);
    }
    let ours = meta.uid() == sys::user() && meta.mode() & 0o022 == 0;
    if ours {
        Ok(())
    } else {
        let why = "it belongs to a different user, or other users can write to it";
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why)).attempt("use", path)
    }
}

/// Returns the mode for the parent of the run directories. If we are root, the server's account must be able
/// to traverse it.
pub(crate) fn parent_mode() -> u32 {
    if sys::is_root() { 0o711 } else { 0o700 }
}

/// Returns true if `path` exists. An existing path must satisfy the conditions of [`ensure`].
pub(crate) fn ensure_existing(path: &Path) -> Result<bool, FileError> {
    let Ok(meta) = path.symlink_metadata() else { return Ok(false) };
    check(path, &meta)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn private_directory_rejects_existing_file_or_link() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(directory.path(), &link).unwrap();
        for path in [file, link] {
            let error = ensure(&path, 0o700).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotADirectory, "{error}");
        }
    }

    /// `/proc` returns `NotFound` for a new directory even though the parent exists.
    #[test]
    #[cfg_attr(not(target_os = "linux"), ignore = "needs /proc")]
    fn private_directory_fails_where_file_system_forbids_creation() {
        let error = ensure(Path::new("/proc/pgfresh"), 0o700).unwrap_err().to_string();
        assert!(error.starts_with(r#"could not create "/proc/pgfresh""#), "{error}");
    }

    #[test]
    #[expect(clippy::let_underscore_must_use, reason = "the other thread may have been quicker")]
    fn directory_removed_concurrently_is_no_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("root");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let _ = fs::remove_dir(&path);
                }
            });
            let outcome = (0..20_000).try_for_each(|_| ensure(&path, 0o700));
            done.store(true, Ordering::Relaxed);
            outcome.unwrap();
        });
    }
}
