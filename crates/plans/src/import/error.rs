//! Errors of an import. Their messages contain no values of columns, and no passwords.

use postgres::error::SqlState;

/// Reasons why pgfresh could not read statistics from a server.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The URL has an error. The text does not repeat the URL, which may contain a password.
    #[error("cannot read the URL of the database: {0}")]
    Url(String),
    /// A file with a certificate or a password cannot be used.
    #[error("cannot use \"{}\": {reason}", path.display())]
    File {
        /// Path of the file.
        path: std::path::PathBuf,
        /// Reason without values.
        reason: String,
    },
    /// The connection failed.
    #[error("cannot connect to {server}: {reason}")]
    Connect {
        /// Host and port.
        server: String,
        /// Reason in the words of the server or the operating system.
        reason: String,
    },
    /// The server, or another program at its address, does not answer.
    #[error("{server} has not answered for {} s", limit.as_secs())]
    Silent {
        /// Host and port.
        server: String,
        /// How long pgfresh waited.
        limit: std::time::Duration,
    },
    /// The server reports an error.
    #[error("could not read {part}: {reason}")]
    Query {
        /// Part of the statistics.
        part: &'static str,
        /// PostgreSQL's message with its SQLSTATE, or the connection's error.
        reason: String,
        /// SQLSTATE, if the server reports the error.
        sqlstate: Option<SqlState>,
    },
    /// The server's answer has another shape than PostgreSQL's.
    #[error("could not read {part}: the server's answer has no valid \"{column}\"")]
    Answer {
        /// Part of the statistics.
        part: &'static str,
        /// Column of the answer.
        column: &'static str,
    },
    /// The server was built with another page size.
    #[error("the server has pages of {0} bytes, but pgfresh's servers have pages of 8192 bytes")]
    PageSize(u32),
    /// The server is older than every supported version.
    #[error("the server has version {0}, but pgfresh reads statistics from version 13 on")]
    OldServer(u32),
}

impl ImportError {
    /// Creates an error for a part of the statistics.
    pub(super) fn query(part: &'static str, error: &postgres::Error) -> Self {
        Self::Query { part, reason: reason(error), sqlstate: error.code().cloned() }
    }

    /// Returns advice for the user.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Url(_) => {
                "Write postgresql://USER@HOST:PORT/DATABASE?sslmode=MODE, and put the password into PGPASSWORD or \
                 ~/.pgpass."
            }
            Self::Query { sqlstate: Some(sqlstate), .. } if *sqlstate == SqlState::QUERY_CANCELED => {
                "Each query may take a minute. Try again when the server has less to do, or read from a standby."
            }
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

/// Describes an error without its detail and context, which may contain values.
pub(super) fn reason(error: &postgres::Error) -> String {
    if let Some(error) = error.as_db_error() {
        return format!("{} ({})", error.message(), error.code().code());
    }
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
