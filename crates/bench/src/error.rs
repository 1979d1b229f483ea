//! Defines the errors of a measurement.

use std::io;
use std::path::Path;
use std::process::ExitStatus;

use gateway::GatewayError;
use lease::LeaseError;
use server::{SessionError, StartError};
use storage::{CacheError, FileError};
use template::ProvisionError;

/// An error of a contender or its preparation.
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
    /// The HTTP API refused a request, or the connection failed.
    #[error("could not lease over HTTP")]
    Http(#[source] io::Error),
    /// A program run by a contender failed.
    #[error("could not time \"{program}\": {status}")]
    Program {
        /// The name of the program.
        program: String,
        /// The program's exit status.
        status: ExitStatus,
        /// The last line of the program's output.
        last_line: Option<String>,
    },
    /// A program required by the workload isn't installed.
    #[error("could not find \"{program}\"")]
    NoProgram {
        /// The name of the program.
        program: &'static str,
    },
    /// A program's output has an unexpected format.
    #[error("could not parse the output of \"{program}\"")]
    UnexpectedOutput {
        /// The name of the program.
        program: &'static str,
    },
    /// The text isn't a valid server URL.
    #[error("could not read the URL")]
    Url(#[source] postgres::Error),
    /// The URL requires encryption, which the benchmark doesn't support.
    #[error("cannot time this server: it requires encryption (sslmode=require)")]
    Encryption,
    /// The connection failed.
    #[error("could not connect to the server")]
    Connect(#[source] postgres::Error),
    /// The benchmark couldn't create its schema.
    #[error("could not create schema \"pgfresh_bench\"")]
    Schema(#[source] postgres::Error),
    /// The server refused an event.
    #[error("could not append events")]
    Store(#[source] postgres::Error),
    /// The benchmark's database already contains collections.
    #[error("database \"{database}\" has collections in it already")]
    NotEmpty {
        /// The name of the database.
        database: &'static str,
    },
    /// The `MongoDB` driver failed, or a server speaking `MongoDB`'s protocol did.
    #[cfg(feature = "mongodb")]
    #[error("could not {verb}")]
    Documents {
        /// The attempted action.
        verb: &'static str,
        /// The reason, on one line.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A server started by hand didn't become ready.
    #[error("could not time a server started by hand: it was not ready after {seconds} s")]
    NotReady {
        /// The timeout, in seconds.
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
    /// Returns the last output of the failed program or server, if there is any.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Provisioner(error) => error.detail(),
            Self::Database(error) => error.detail(),
            Self::Program { last_line: last_words, .. } => {
                last_words.as_ref().map(|words| format!("Last log line: {words}"))
            }
            _ => None,
        }
    }

    /// Returns advice for the user, if any.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Provisioner(error) => error.hint(),
            Self::File(error) => error.hint(),
            Self::NoProgram { program } => {
                Some(format!("PostgreSQL contains this program: put the directory of \"{program}\" on PATH."))
            }
            Self::Url(_) => Some("Write postgresql://USER:PASSWORD@HOST:PORT/DATABASE.".to_owned()),
            Self::Encryption => {
                Some("Connect without encryption, for example over its unix socket.".to_owned())
            }
            Self::Connect(_) => {
                Some("Check that it listens there, and that the user may connect to that database.".to_owned())
            }
            Self::NotEmpty { database } => Some(format!(
                "A benchmark that was killed leaves it behind: if none is running, drop database \"{database}\"."
            )),
            Self::Schema(_) => Some(
                "A benchmark that was killed leaves it behind: if none is running, DROP SCHEMA pgfresh_bench CASCADE; \
                 otherwise the user must be allowed to create schemas."
                    .to_owned(),
            ),
            Self::Database(error) => error.hint(),
            Self::Gateway(error) => error.hint(),
            _ => None,
        }
    }

    /// Returns an error if `program` failed. `log` contains the program's output.
    pub(crate) fn check_status(program: &str, status: ExitStatus, log: &Path) -> Result<(), Self> {
        if status.success() {
            return Ok(());
        }
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let last_words = text.lines().rfind(|line| !line.trim().is_empty()).map(str::to_owned);
        Err(Self::Program { program: program.to_owned(), status, last_line: last_words })
    }
}
