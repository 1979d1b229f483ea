//! Errors of the scratch copy.

use std::path::PathBuf;

use server::{RestartFailure, SessionError, StartError, StopError};
use storage::{FileError, human_bytes};
use template::ProvisionError;

/// Reason why there is no scratch copy.
#[derive(Debug, thiserror::Error)]
pub enum ScratchError {
    /// pgfresh could not start a server on a copy of the template.
    #[error(transparent)]
    Provision(#[from] ProvisionError),
    /// A session failed.
    #[error("could not {verb} in the scratch copy")]
    Session {
        /// Action that failed.
        verb: &'static str,
        /// The session's error.
        source: SessionError,
    },
    /// A file of the copy could not be changed.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file system stores holes as zeros, so production's sizes would take production's space.
    #[error("cannot give tables production's sizes in \"{}\": this file system has no sparse files", path.display())]
    NoHoles {
        /// Place of the copy.
        path: PathBuf,
    },
    /// A limit of this process on the size of files is too low.
    #[error("cannot give tables production's sizes: files are limited to {}", human_bytes(*limit))]
    FileSize {
        /// Limit in bytes.
        limit: u64,
    },
    /// The statistics describe more than pgfresh tries to imitate.
    #[error("cannot imitate a database of {}: the limit is {}", human_bytes(*bytes), human_bytes(*most))]
    TooLarge {
        /// Size of all tables and indexes, in bytes.
        bytes: u64,
        /// Maximum, in bytes.
        most: u64,
    },
    /// The server has pages of another size than 8 KiB.
    #[error("cannot use statistics with pages of {0} bytes: 8192 are supported")]
    BlockSize(String),
}

impl ScratchError {
    /// Returns the detail of the cause, as a full sentence.
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

/// Names the action of a failed session.
pub(crate) trait During<T> {
    fn during(self, verb: &'static str) -> Result<T, ScratchError>;
}

impl<T> During<T> for Result<T, SessionError> {
    fn during(self, verb: &'static str) -> Result<T, ScratchError> {
        self.map_err(|source| ScratchError::Session { verb, source })
    }
}
