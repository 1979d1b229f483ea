//! Adds the failed action and its path to I/O errors, because a bare [`io::Error`] has neither.

use std::io;
use std::path::{Path, PathBuf};

/// An action on a file or directory that failed.
#[derive(Debug, thiserror::Error)]
#[error("could not {verb} \"{}\"", path.display())]
pub struct FileError {
    verb: &'static str,
    path: PathBuf,
    source: io::Error,
    /// True if the user chose the path. Advice about pgfresh's own locations would then be misleading.
    is_given: bool,
}

impl FileError {
    /// Returns the kind of the underlying I/O error.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    /// Marks the path as chosen by the user if it is `folder` or lies inside it. [`Self::hint`] then doesn't
    /// suggest another location.
    #[must_use]
    pub fn given_in(mut self, folder: &Path) -> Self {
        self.is_given |= self.path.starts_with(folder);
        self
    }

    /// Returns advice for the user, if any.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self.source.kind() {
            io::ErrorKind::PermissionDenied if self.verb == "read" => {
                Some("Make it readable (chmod u+r).".to_owned())
            }
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::PermissionDenied
                if self.is_given =>
            {
                None
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Some(
                "Free some space (\"pgfresh sweep\", \"pgfresh template rm\"), or choose another place with --place PATH (the data) or --cache PATH (templates)."
                    .to_owned(),
            ),
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => Some(
                "Choose a writable directory with PGFRESH_CACHE (the cache), --place PATH (the data), or XDG_DATA_HOME (servers with a name)."
                    .to_owned(),
            ),
            _ => sys::limit_hint(&self.source).map(str::to_owned),
        }
    }
}

/// Turns an [`io::Error`] into a [`FileError`] by adding the failed action and the path.
pub trait Attempt<T> {
    /// Adds the action and the path, for the message "could not `verb` `path`".
    ///
    /// # Errors
    /// Returns the original error as a [`FileError`].
    fn attempt(self, verb: &'static str, path: &Path) -> Result<T, FileError>;

    /// Like [`Attempt::attempt`], but for a path the user chose.
    ///
    /// # Errors
    /// Returns the original error as a [`FileError`].
    fn attempt_given(self, verb: &'static str, path: &Path) -> Result<T, FileError>
    where
        Self: Sized,
    {
        self.attempt(verb, path).map_err(|error| error.given_in(path))
    }
}

impl<T, E: Into<io::Error>> Attempt<T> for Result<T, E> {
    fn attempt(self, verb: &'static str, path: &Path) -> Result<T, FileError> {
        self.map_err(|error| FileError { verb, path: path.to_owned(), source: error.into(), is_given: false })
    }
}
