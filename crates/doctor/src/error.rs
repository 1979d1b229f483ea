//! What can go wrong while examining.

use profile::ProfileError;
use storage::{FileError, PlaceError};
use template::ProvisionError;

/// A path could not be examined.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// Nothing can be written there.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// A file or directory could not be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// psql could not do what it was asked, or did not get to the server.
    #[error("could not ask the server: {reason}")]
    Psql {
        /// The first line of its errors.
        reason: String,
    },
}

impl DoctorError {
    /// What to do.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Place(PlaceError::Unfit { .. }) => {
                Some("Name a directory that you may write to: \"pgfresh doctor PATH\".".to_owned())
            }
            Self::Place(error) => error.hint(),
            Self::File(error) => error.hint(),
            Self::Psql { .. } => Some("Try the same with psql.".to_owned()),
        }
    }
}

/// Servers of ours could not be examined.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServedError {
    /// There is none.
    #[error(transparent)]
    Provisioner(#[from] ProvisionError),
    /// It cannot be watched.
    #[error(transparent)]
    Profile(#[from] ProfileError),
}
