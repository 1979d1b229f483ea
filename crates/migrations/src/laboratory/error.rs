//! Defines the errors of the laboratory.

use std::thread;
use std::time::{Duration, Instant};

use server::{SessionError, StartError};
use storage::FileError;
use template::ProvisionError;

/// Timeout for changes that normally take milliseconds.
const SOON: Duration = Duration::from_secs(30);

/// Reason why the laboratory has no observations.
#[derive(Debug, thiserror::Error)]
pub enum LaboratoryError {
    /// pgfresh could not start a server on a copy of the template.
    #[error(transparent)]
    Provision(#[from] ProvisionError),
    /// One of the laboratory's sessions failed.
    #[error("could not {verb} in the laboratory")]
    Session {
        /// The action that failed, such as "repeat a request".
        verb: &'static str,
        /// The error that the session returned.
        source: SessionError,
    },
    /// pgfresh could not observe whether the server's processes ended.
    #[error(transparent)]
    File(#[from] FileError),
    /// The laboratory waited for an event that didn't happen.
    #[error("could not see {event} in the laboratory after {} s", after.as_secs())]
    Silent {
        /// The event that didn't happen.
        event: &'static str,
        /// How long the laboratory waited.
        after: Duration,
    },
}

impl LaboratoryError {
    /// Describes the cause in a full sentence. `None` if the error message already says everything.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Provision(error) => error.detail(),
            Self::Session { source, .. } => source.detail(),
            Self::File(_) | Self::Silent { .. } => None,
        }
    }

    /// Returns advice for the user in a full sentence. `None` if pgfresh has no advice.
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

/// Adds the action to the error of a failed session.
pub(super) trait During<T> {
    fn during(self, verb: &'static str) -> Result<T, LaboratoryError>;
}

impl<T> During<T> for Result<T, SessionError> {
    fn during(self, verb: &'static str) -> Result<T, LaboratoryError> {
        self.map_err(|source| LaboratoryError::Session { verb, source })
    }
}

/// Calls `happened` every millisecond until it returns true.
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
