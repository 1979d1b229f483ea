//! What was tried on which file, and what came back.

use std::io;
use std::path::{Path, PathBuf};

/// A failed attempt on a file or directory.
#[derive(Debug, thiserror::Error)]
#[error("could not {verb} \"{}\"", path.display())]
pub struct FileError {
    verb: &'static str,
    path: PathBuf,
    source: io::Error,
    /// Whether the user gave this very path: no place of ours is at fault.
    is_given: bool,
}

impl FileError {
    /// What the operating system answered.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    /// The same, about a path that the user gave if it is `folder` or lies in it: no place of ours is suggested instead.
    #[must_use]
    pub fn given_in(mut self, folder: &Path) -> Self {
        self.is_given |= self.path.starts_with(folder);
        self
    }

    /// What the user can do about it, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self.source.kind() {
            io::ErrorKind::PermissionDenied if self.verb == "read" => {
                Some("Give yourself the right to read it (chmod u+r).".to_owned())
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
            _ => sys::remedy(&self.source).map(str::to_owned),
        }
    }
}

/// Gives a bare [`io::Error`] the verb and the path it needs to make sense.
pub trait Attempt<T> {
    /// Names what was tried, as in "could not `verb` `path`".
    fn attempt(self, verb: &'static str, path: &Path) -> Result<T, FileError>;

    /// The same of a path that the user gave.
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
