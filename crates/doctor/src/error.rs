//! Defines the errors of an examination.

use storage::{FileError, PlaceError};

/// An error that prevented an examination.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// The path isn't writable.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// A file or directory is unusable.
    #[error(transparent)]
    File(#[from] FileError),
    /// psql failed or couldn't reach the server.
    #[error("could not query the server: {reason}")]
    Psql {
        /// The first line psql printed to standard error.
        reason: String,
    },
}

impl DoctorError {
    /// Returns advice for the user, if any.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Place(PlaceError::Unsuitable { .. }) => {
                Some("Name a directory that you may write to: \"pgfresh doctor PATH\".".to_owned())
            }
            Self::Place(error) => error.hint(),
            Self::File(error) => error.hint(),
            Self::Psql { .. } => Some("Try the same with psql.".to_owned()),
        }
    }
}
