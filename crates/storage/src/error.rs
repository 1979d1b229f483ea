//! Errors of the cache and of copies.

use std::path::PathBuf;

use crate::attempt::FileError;

/// Failure to open the cache or to add an entry.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The operating system refused.
    #[error(transparent)]
    File(#[from] FileError),
    /// The tree holds a file that separate copies cannot have, or differs from its manifest.
    #[error("cannot cache \"{}\": {what}", path.display())]
    Unfit {
        /// Path of the file.
        path: PathBuf,
        /// Reason, as the end of a sentence.
        what: &'static str,
    },
    /// No trusted key has signed the entry in its present form.
    #[error("cannot trust \"{}\": {what}", path.display())]
    Untrusted {
        /// Path of the entry, or of the file in it that is not trusted.
        path: PathBuf,
        /// Reason, as the end of a sentence.
        what: String,
    },
}

/// Failure of a copy. Its files remain until the run directory is removed.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The operating system refused.
    #[error(transparent)]
    File(#[from] FileError),
    /// The entry differs from its manifest. The remedy is to discard it and build it anew.
    #[error("cache entry is damaged: \"{}\" {what}", path.display())]
    Damaged {
        /// Path of the damaged file.
        path: PathBuf,
        /// Damage, as the end of a sentence.
        what: &'static str,
    },
}

impl CopyError {
    /// Whether a new build of the entry would help.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. })
    }
}
