//! What can go wrong while examining.

use storage::{FileError, PlaceError};

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
