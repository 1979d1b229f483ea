//! Defines the errors that occur while opening the cache, adding an entry, or copying an entry.

use std::path::PathBuf;

use crate::file_error::FileError;

/// An error that occurred while opening the cache or adding an entry.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// The directory tree contains a file that can't be part of an entry, or the tree differs from its
    /// manifest.
    #[error("cannot cache \"{}\": {what}", path.display())]
    Invalid {
        /// Path of the file.
        path: PathBuf,
        /// The reason, worded as the end of a sentence.
        what: &'static str,
    },
    /// The entry's current content has no signature from a trusted key.
    #[error("cannot trust \"{}\": {what}", path.display())]
    Untrusted {
        /// Path of the entry, or of the untrusted file inside it.
        path: PathBuf,
        /// The reason, worded as the end of a sentence.
        what: String,
    },
}

/// An error that occurred during a copy. The files copied so far remain until the run directory is removed.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// The entry differs from its manifest. To recover, discard the entry and build it again.
    #[error("cache entry is damaged: \"{}\" {what}", path.display())]
    Damaged {
        /// Path of the damaged file.
        path: PathBuf,
        /// The damage, worded as the end of a sentence.
        what: &'static str,
    },
}

impl CopyError {
    /// Returns true if rebuilding the entry would help.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. })
    }
}
