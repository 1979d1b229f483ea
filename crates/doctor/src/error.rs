//! Errors of examinations.

use storage::{FileError, PlaceError};

/// Failure of an examination.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// The path is not writable.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// A file or directory is not usable.
    #[error(transparent)]
    File(#[from] FileError),
    /// psql failed, or could not reach the server.
    #[error("could not ask the server: {reason}")]
    Psql {
        /// First line of its error output.
        reason: String,
    },
}

impl DoctorError {
    /// Returns advice for the user, if there is any.
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
