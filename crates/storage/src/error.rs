//! What can go wrong with the cache and with a copy.

use std::path::PathBuf;

use crate::attempt::FileError;

/// Why there is no cache, or why an entry did not come into it.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The operating system refused.
    #[error(transparent)]
    File(#[from] FileError),
    /// What was to be published holds something that a copy could not give every server for itself.
    #[error("cannot cache \"{}\": {what}", path.display())]
    Unfit {
        /// The file in question.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// What was carried here is not what a trusted key has signed.
    #[error("cannot trust \"{}\": {what}", path.display())]
    Untrusted {
        /// The entry, or the file of it in question.
        path: PathBuf,
        /// Why not.
        what: String,
    },
}

/// Why a copy ended half-way. What it has made so far stays until its run directory is removed.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The operating system refused.
    #[error(transparent)]
    File(#[from] FileError),
    /// The entry is not what was published: forget it and build it anew.
    #[error("cache entry is damaged: \"{}\" {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
}

impl CopyError {
    /// Whether building the entry anew would help.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. })
    }
}
