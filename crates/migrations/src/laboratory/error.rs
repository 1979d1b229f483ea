//! Errors of the laboratory.

use std::thread;
use std::time::{Duration, Instant};

use server::{SessionError, StartError};
use storage::FileError;
use template::ProvisionError;

/// Timeout for changes that take milliseconds.
const SOON: Duration = Duration::from_secs(30);

/// Reason why there are no observations.
#[derive(Debug, thiserror::Error)]
pub enum LaboratoryError {
    /// pgfresh could not start a server on a copy of the template.
    #[error(transparent)]
    Provision(#[from] ProvisionError),
    /// A session failed.
    #[error("could not {verb} in the laboratory")]
    Session {
        /// Action that failed.
        verb: &'static str,
        /// The session's error.
        source: SessionError,
    },
    /// The end of the server's processes could not be observed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A wait was in vain.
    #[error("could not see {event} in the laboratory after {} s", after.as_secs())]
    Silent {
        /// Awaited event.
        event: &'static str,
        /// Duration of the wait.
        after: Duration,
    },
}

impl LaboratoryError {
    /// Returns the detail of the cause, as a full sentence.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Provision(error) => error.detail(),
            Self::Session { source, .. } => source.detail(),
            Self::File(_) | Self::Silent { .. } => None,
        }
    }

    /// Returns advice for the user, as a full sentence.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Provision(error) => error.hint(),
            Self::File(error) => error.hint(),
            Self::Session { .. } | Self::Silent { .. } => None,
        }
    }
}

impl From<StartError> for LaboratoryError {
    fn from(error: StartError) -> Self {
        Self::Provision(error.into())
    }
}

/// Names the action of a failed session.
pub(super) trait During<T> {
    fn during(self, verb: &'static str) -> Result<T, LaboratoryError>;
}

impl<T> During<T> for Result<T, SessionError> {
    fn during(self, verb: &'static str) -> Result<T, LaboratoryError> {
        self.map_err(|source| LaboratoryError::Session { verb, source })
    }
}

/// Asks every millisecond until `happened` returns true.
pub(super) fn wait_for(
    event: &'static str,
    mut happened: impl FnMut() -> Result<bool, LaboratoryError>,
) -> Result<(), LaboratoryError> {
    let begun = Instant::now();
    while !happened()? {
        if begun.elapsed() > SOON {
            return Err(LaboratoryError::Silent { event, after: SOON });
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
