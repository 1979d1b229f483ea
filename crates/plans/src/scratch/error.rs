//! Errors of the scratch server.

use std::path::PathBuf;

use server::{RestartFailure, SessionError, StartError, StopError};
use storage::{FileError, human_bytes};
use template::ProvisionError;

/// Reason why there is no scratch server.
#[derive(Debug, thiserror::Error)]
pub enum ScratchError {
    /// pgfresh could not start a server on a copy of the template.
    #[error(transparent)]
    Provision(#[from] ProvisionError),
    /// A session failed.
    #[error("could not {verb} in the scratch copy")]
    Session {
        /// The action that failed, as a verb phrase such as `match columns`.
        verb: &'static str,
        /// Error of the session.
        source: SessionError,
    },
    /// A file of the copy couldn't be changed.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file system doesn't support holes in files, so tables would take as much space as in production.
    #[error(
        "cannot give tables production's sizes in \"{}\": this file system does not support sparse files",
        path.display()
    )]
    NoHoles {
        /// Path of the copy.
        path: PathBuf,
    },
    /// The file size limit of this process is too low.
    #[error("cannot give tables production's sizes: files are limited to {}", human_bytes(*limit))]
    FileSize {
        /// The limit in bytes.
        limit: u64,
    },
    /// Production is larger than the sizes that pgfresh imitates.
    #[error("cannot imitate a database of {}: the limit is {}", human_bytes(*bytes), human_bytes(*most))]
    TooLarge {
        /// Total size of all tables and indexes in bytes.
        bytes: u64,
        /// Maximum total size in bytes.
        most: u64,
    },
    /// The server's page size isn't 8 KiB.
    #[error("cannot use statistics with pages of {0} bytes: 8192 are supported")]
    BlockSize(String),
}

impl ScratchError {
    /// Returns details about the cause, as a full sentence.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Provision(error) => error.detail(),
            Self::Session { source, .. } => source.detail(),
            _ => None,
        }
    }

    /// Returns advice for the user, as a full sentence.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Provision(error) => error.hint(),
            Self::File(error) => error.hint(),
            Self::NoHoles { .. } => Some(
                "Choose a place on another file system, such as tmpfs, ext4, XFS or btrfs: --place PATH."
                    .to_owned(),
            ),
            Self::FileSize { .. } => Some("Raise the limit: ulimit -f unlimited.".to_owned()),
            _ => None,
        }
    }
}

impl From<StartError> for ScratchError {
    fn from(error: StartError) -> Self {
        Self::Provision(error.into())
    }
}

impl From<StopError> for ScratchError {
    fn from(error: StopError) -> Self {
        Self::Provision(error.into())
    }
}

impl From<Box<RestartFailure>> for ScratchError {
    fn from(failure: Box<RestartFailure>) -> Self {
        failure.error.into()
    }
}

/// Adds the action that failed to a session error.
pub(crate) trait During<T> {
    fn during(self, verb: &'static str) -> Result<T, ScratchError>;
}

impl<T> During<T> for Result<T, SessionError> {
    fn during(self, verb: &'static str) -> Result<T, ScratchError> {
        self.map_err(|source| ScratchError::Session { verb, source })
    }
}
