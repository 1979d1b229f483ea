//! What can go wrong while something is measured.

use std::path::Path;
use std::process::ExitStatus;

use gateway::GatewayError;
use lease::LeaseError;
use server::{SessionError, StartError};
use storage::{CacheError, FileError};
use template::ProvisionError;

/// A contender did not do what was to be timed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum BenchError {
    #[error(transparent)]
    Provisioner(#[from] ProvisionError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Database(#[from] LeaseError),
    #[error(transparent)]
    Gateway(#[from] GatewayError),
    /// A program that was to be timed failed.
    #[error("could not time \"{program}\": {status}")]
    Program {
        /// What was run.
        program: String,
        /// How it ended.
        status: ExitStatus,
        /// The last line that it wrote.
        last_words: Option<String>,
    },
    /// A program that a workload is made of is not installed.
    #[error("could not find \"{program}\"")]
    NoProgram {
        /// What was looked for.
        program: &'static str,
    },
    /// A program said something else than it used to.
    #[error("could not understand what \"{program}\" printed")]
    Unclear {
        /// What was run.
        program: &'static str,
    },
    /// What was given for a server is no URL.
    #[error("could not read the URL")]
    Url(#[source] postgres::Error),
    /// It wants more than we speak.
    #[error("cannot time this server: it demands encryption (sslmode=require)")]
    Encryption,
    /// No session came to be.
    #[error("could not connect to the server")]
    Connect(#[source] postgres::Error),
    /// The schema that is ours cannot be made.
    #[error("could not create schema \"pgfresh_bench\"")]
    Schema(#[source] postgres::Error),
    /// An event was not taken.
    #[error("could not append events")]
    Store(#[source] postgres::Error),
    /// The database that is ours is there already.
    #[error("database \"{database}\" has collections in it already")]
    NotEmpty {
        /// Its name.
        database: &'static str,
    },
    /// What the driver of `MongoDB`, or a server that speaks its protocol, said.
    #[cfg(feature = "mongodb")]
    #[error("could not {verb}")]
    Documents {
        /// What was tried.
        verb: &'static str,
        /// Why it failed, in one line.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A server that was started by hand did not come up.
    #[error("could not time a server started by hand: it was not ready after {seconds} s")]
    NotReady {
        /// How long we waited.
        seconds: u64,
    },
}

impl From<StartError> for BenchError {
    fn from(error: StartError) -> Self {
        Self::Provisioner(error.into())
    }
}

impl From<CacheError> for BenchError {
    fn from(error: CacheError) -> Self {
        Self::Provisioner(error.into())
    }
}

impl From<SessionError> for BenchError {
    fn from(error: SessionError) -> Self {
        Self::Provisioner(error.into())
    }
}

impl BenchError {
    /// What came back.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Provisioner(error) => error.detail(),
            Self::Database(error) => error.detail(),
            Self::Program { last_words, .. } => {
                last_words.as_ref().map(|words| format!("Last log line: {words}"))
            }
            _ => None,
        }
    }

    /// What to do.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Provisioner(error) => error.hint(),
            Self::File(error) => error.hint(),
            Self::NoProgram { program } => {
                Some(format!("It comes with PostgreSQL; put the directory of \"{program}\" on PATH."))
            }
            Self::Url(_) => Some("Write postgresql://USER:PASSWORD@HOST:PORT/DATABASE.".to_owned()),
            Self::Encryption => {
                Some("Connect from where it lets you in without, such as its unix socket.".to_owned())
            }
            Self::Connect(_) => {
                Some("See that it listens there, and that the user may connect to that database.".to_owned())
            }
            Self::NotEmpty { database } => Some(format!(
                "A bench that was killed leaves it behind: if none is running, drop database \"{database}\"."
            )),
            Self::Schema(_) => Some(
                "A bench that was killed leaves it behind: if none is running, DROP SCHEMA pgfresh_bench CASCADE; \
                 otherwise the user must be allowed to create schemas."
                    .to_owned(),
            ),
            Self::Database(error) => error.hint(),
            Self::Gateway(error) => error.hint(),
            _ => None,
        }
    }

    /// An error unless `program` ended well; `log` is where it wrote.
    pub(crate) fn unless_success(program: &str, status: ExitStatus, log: &Path) -> Result<(), Self> {
        if status.success() {
            return Ok(());
        }
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let last_words = text.lines().rfind(|line| !line.trim().is_empty()).map(str::to_owned);
        Err(Self::Program { program: program.to_owned(), status, last_words })
    }
}
