//! Keeps all of an entry's directories open, so that opening a file is fast and no link can redirect it.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use sys::Directory;

use crate::Account;
use crate::error::CopyError;
use crate::file_error::{Attempt, FileError};
use crate::manifest::Manifest;

/// A directory tree whose directories are all open. Opening a file neither walks the path from the root nor
/// follows any link.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) root: PathBuf,
    /// Open directories in the order of [`Manifest::directories`]. The last one is the root.
    pub(crate) directories: Vec<Directory>,
}

impl Tree {
    /// Opens the directories in `manifest` below `top`, whose path is `root`.
    pub(crate) fn open(root: &Path, top: Directory, manifest: &Manifest) -> Result<Self, CopyError> {
        Self::walk(root, top, manifest, |parent, name, path| with_path(parent.directory(name), path))
    }

    /// Creates the directory `root` and the directories in `manifest` inside it, all owned by `account`.
    pub(crate) fn make(root: &Path, manifest: &Manifest, account: &Account) -> Result<Self, CopyError> {
        let make = |parent: &Directory, name: &OsStr, path: &Path| -> Result<Directory, FileError> {
            let directory = parent.create_directory(name).attempt("create", path)?;
            account.change_owner(&directory).attempt("change the owner of", path)?;
            Ok(directory)
        };
        let (parent, name) = (root.parent().unwrap_or(Path::new("/")), root.file_name().unwrap_or_default());
        let parent = Directory::open(parent).attempt("open", parent)?;
        let top = make(&parent, name, root)?;
        Self::walk(root, top, manifest, |parent, name, path| Ok(make(parent, name, path)?))
    }

    /// Visits the directories from the top down, calling `step` with the open parent directory, the name and
    /// the path of each.
    fn walk(
        root: &Path,
        top: Directory,
        manifest: &Manifest,
        step: impl Fn(&Directory, &OsStr, &Path) -> Result<Directory, CopyError>,
    ) -> Result<Self, CopyError> {
        let mut directories: Vec<Directory> = Vec::with_capacity(manifest.directories.len() + 1);
        for relative in &manifest.directories {
            let path = root.join(relative);
            let reached = manifest.parent_of(relative).and_then(|(folder, name)| {
                let is_top = folder == manifest.directories.len();
                Some((if is_top { &top } else { directories.get(folder)? }, name))
            });
            let Some((parent, name)) = reached else {
                return Err(CopyError::Damaged { path, what: "is not in a directory of the entry" });
            };
            directories.push(step(parent, name.as_ref(), &path)?);
        }
        directories.push(top);
        Ok(Self { root: root.to_owned(), directories })
    }
}

/// Adds the path to an error from opening it. If the path is missing or isn't of the expected kind (a regular
/// file or a directory), returns [`CopyError::Damaged`] instead.
pub(crate) fn with_path<T>(opened: io::Result<T>, path: &Path) -> Result<T, CopyError> {
    let damaged = |what| Err(CopyError::Damaged { path: path.to_owned(), what });
    match opened {
        Err(error) if sys::is_absent(&error) => damaged("is missing"),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => damaged("is not a regular file"),
        other => Ok(other.attempt("open", path)?),
    }
}
