//! Writes files completely or not at all, so that a full disk leaves no partial file at the user's path.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Maximum number of temporary files that killed processes have left beside a file.
const MAX_LEFTOVERS: u32 = 100;

/// Users who may read a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readers {
    /// The users that the umask of pgfresh's caller allows.
    Usual,
    /// Only this user.
    Owner,
}

/// Writes a new file at `path`.
///
/// # Errors
/// Returns [`ErrorKind::AlreadyExists`] if something exists at the path, or an error of the file system. The path is
/// then unchanged.
pub(crate) fn create(path: &Path, text: &str, readers: Readers) -> io::Result<()> {
    stage(path, text, readers, |staging| {
        // Unlike a rename, a link never replaces a file.
        match fs::hard_link(staging, path) {
            Ok(()) => fs::remove_file(staging),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(error),
            // Some file systems have no hard links.
            Err(_) if path.symlink_metadata().is_err() => fs::rename(staging, path),
            Err(_) => Err(ErrorKind::AlreadyExists.into()),
        }
    })
}

/// Writes the file at `path`, or replaces it. The users that the umask of pgfresh's caller allows may read it.
///
/// # Errors
/// Returns an error of the file system. The path is then unchanged.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    stage(path, text, Readers::Usual, |staging| fs::rename(staging, path))
}

/// Writes a temporary file beside `path`, and calls `publish` to move it. Removes the temporary file after an error.
fn stage(
    path: &Path,
    text: &str,
    readers: Readers,
    publish: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let (mut file, staging) = temporary(path)?;
    // pgfresh's own umask keeps the file private until then.
    let written = file.write_all(text.as_bytes()).and_then(|()| match readers {
        Readers::Usual => sys::apply_original_mask(&file),
        Readers::Owner => Ok(()),
    });
    let published = written.and_then(|()| publish(&staging));
    if published.is_err()
        && let Err(error) = fs::remove_file(&staging)
    {
        tracing::debug!(%error, path = %staging.display(), "could not remove a partial file");
    }
    published
}

/// Creates a file beside `path` with a name that no other file has, such as one that a killed process left.
fn temporary(path: &Path) -> io::Result<(File, PathBuf)> {
    let process = std::process::id();
    let mut number = 0;
    loop {
        let staging = path.with_added_extension(format!("{process}-{number}.new"));
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&staging) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && number < MAX_LEFTOVERS => number += 1,
            opened => return Ok((opened?, staging)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn new_files_never_replace_and_leave_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let names = || {
            let mut names: Vec<_> =
                fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let (new, link) = (folder.path().join("new"), folder.path().join("link"));
        symlink("nowhere", &link).unwrap();
        create(&new, "1", Readers::Owner).unwrap();
        for path in [&new, &link] {
            let error = create(path, "2", Readers::Usual).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        }
        assert_eq!(fs::read_to_string(&new).unwrap(), "1");
        assert_eq!(new.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(new.with_added_extension(format!("{}-0.new", std::process::id())), "left").unwrap();
        replace(&new, "3").unwrap();
        assert_eq!(fs::read_to_string(&new).unwrap(), "3");
        assert_eq!(names().len(), 3);
        assert!(create(&folder.path().join("missing/new"), "", Readers::Usual).is_err());
    }
}
