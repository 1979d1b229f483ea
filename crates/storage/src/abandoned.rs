//! Finds and removes abandoned run directories (those without an owner), and those that pgfresh kept for the user.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sys::Lock;

use crate::file_error::{Attempt, FileError};
use crate::private;
use crate::removal::remove_tree;
use crate::run::{
    HELPER_LOCK, KEPT_PREFIX, OWNER_LOCK, REMOVAL_EXTENSION, SERVER_LOCK, remove_if_empty, run_root,
};

/// A run directory that has lost its owner and is now locked by us. First terminate the processes that hold
/// one of the [`Abandoned::locks`], then [`Abandoned::remove`] the directory.
#[derive(Debug)]
pub struct Abandoned {
    path: PathBuf,
    _owner: Lock,
}

impl Abandoned {
    /// Locks all directories in `root` that don't have an owner. Removes `root` if it is empty.
    ///
    /// # Errors
    /// Returns an error if another user owns `root` or can write to it. Skips directories that can't be
    /// locked.
    pub fn find(root: &Path) -> Result<Vec<Self>, FileError> {
        let mut found = Vec::new();
        for entry in entries(root)? {
            let path = entry.path();
            let kind = entry.file_type().attempt("examine", &path)?;
            if kind.is_symlink() {
                // A short link whose directory is gone.
                if !path.exists()
                    && let Err(error) = fs::remove_file(&path)
                {
                    tracing::debug!(%error, path = %path.display(), "could not remove a short name");
                }
            } else if kind.is_dir() && is_run_name(&path) {
                found.extend(Self::at(&path).ok().flatten());
            }
        }
        remove_if_empty(root);
        Ok(found)
    }

    /// Locks the directory at `path`. Returns `None` if it doesn't exist or has an owner.
    ///
    /// # Errors
    /// Returns the error of the file system, with the path.
    pub fn at(path: &Path) -> Result<Option<Self>, FileError> {
        Self::of(path, Lock::try_take)
    }

    /// Waits until the directory at `path` no longer has an owner, then
    /// locks the directory. Returns `None` if the directory doesn't exist.
    ///
    /// # Errors
    /// Returns the error of the file system, with the path.
    pub fn wait_for_owner(path: &Path) -> Result<Option<Self>, FileError> {
        Self::of(path, |lock| Lock::take(lock).map(Some))
    }

    fn of(path: &Path, take: impl Fn(&Path) -> io::Result<Option<Lock>>) -> Result<Option<Self>, FileError> {
        // The process removing the directory might have died after the rename, so look for the renamed directory, too.
        let dead = path.with_extension(REMOVAL_EXTENSION);
        for path in [path, &dead] {
            let lock = path.join(OWNER_LOCK);
            match take(&lock) {
                Ok(owner) => return Ok(owner.map(|owner| Self { path: path.to_owned(), _owner: owner })),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error).attempt("lock", &lock),
            }
        }
        // The owner might have died when only the root existed, so remove an empty root.
        path.parent().into_iter().for_each(remove_if_empty);
        Ok(None)
    }

    /// Returns the path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the paths of the helpers' lock file and the server's lock file. Each lock is held as long as
    /// at least one of these helpers or server processes is alive.
    #[must_use]
    pub fn locks(&self) -> [PathBuf; 2] {
        [HELPER_LOCK, SERVER_LOCK].map(|name| self.path.join(name))
    }

    /// Removes the directory and its short link, and then the parent directory if that is empty.
    ///
    /// # Errors
    /// Returns an error if a file can't be removed. A later sweep finds the rest.
    pub fn remove(self) -> Result<(), FileError> {
        let (Some(root), Some(name)) = (self.path.parent(), self.path.file_stem()) else { return Ok(()) };
        // Rename the directory first. A process that picks the same name, or is waiting for a lock in the
        // directory, then creates a new directory instead.
        let dead = self.path.with_extension(REMOVAL_EXTENSION);
        match fs::rename(&self.path, &dead) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other.attempt("rename", &self.path)?,
        }
        remove_tree(&dead)?;
        let short_root = run_root(Path::new("/tmp"));
        let short = short_root.join(name);
        if short.is_symlink() {
            fs::remove_file(&short).attempt("remove", &short)?;
            remove_if_empty(&short_root);
        }
        remove_if_empty(root);
        Ok(())
    }
}

/// Removes the directories that [`RunDirectory::keep`] left in `root`. Returns their paths.
///
/// # Errors
/// Returns an error if a file can't be removed. The directories before it are gone by then.
pub fn remove_kept(root: &Path) -> Result<Vec<PathBuf>, FileError> {
    let mut removed = Vec::new();
    for entry in entries(root)? {
        if entry.file_name().to_string_lossy().starts_with(KEPT_PREFIX) {
            remove_tree(&entry.path())?;
            removed.push(entry.path());
        }
    }
    remove_if_empty(root);
    Ok(removed)
}

/// Lists the entries of `root`. The list is empty if `root` doesn't exist or was just removed by a sweep.
fn entries(root: &Path) -> Result<Vec<fs::DirEntry>, FileError> {
    if !private::ensure_existing(root)? {
        return Ok(Vec::new());
    }
    match fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listing => Ok(listing.attempt("read", root)?.flatten().collect()),
    }
}

/// Returns true if this is the name of a run directory: eight hex digits, optionally followed by the
/// extension for removals.
fn is_run_name(path: &Path) -> bool {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let extension = path.extension();
    stem.len() == 8
        && stem.bytes().all(|byte| byte.is_ascii_hexdigit())
        && extension.is_none_or(|extension| extension == REMOVAL_EXTENSION)
}
