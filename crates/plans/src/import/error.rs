//! Errors of an import. Their messages contain neither column values nor passwords.

use postgres::error::SqlState;

/// Reason why pgfresh couldn't read statistics from a server.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The URL is invalid. The message doesn't repeat the URL, because it may contain a password.
    #[error("cannot read the URL of the database: {0}")]
    Url(String),
    /// A certificate or password file can't be used.
    #[error("cannot use \"{}\": {reason}", path.display())]
    File {
        /// Path of the file.
        path: std::path::PathBuf,
        /// Reason, without file contents.
        reason: String,
    },
    /// The connection failed.
    #[error("cannot connect to {server}: {reason}")]
    Connect {
        /// Host and port.
        server: String,
        /// Error message of the server or the operating system.
        reason: String,
    },
    /// The server, or another program at its address, doesn't respond.
    #[error("{server} has not responded for {} s", limit.as_secs())]
    Silent {
        /// Host and port.
        server: String,
        /// How long pgfresh waited for a response.
        limit: std::time::Duration,
    },
    /// A query failed.
    #[error("could not read {part}: {reason}")]
    Query {
        /// The part of the statistics that was being read.
        part: &'static str,
        /// PostgreSQL's message with its SQLSTATE, or the error of the connection.
        reason: String,
        /// SQLSTATE. `None` if the connection failed.
        sqlstate: Option<SqlState>,
    },
    /// The response doesn't have the form that PostgreSQL's responses have.
    #[error("could not read {part}: the server's response lacks a valid \"{column}\"")]
    Answer {
        /// The part of the statistics that was being read.
        part: &'static str,
        /// Column of the response.
        column: &'static str,
    },
    /// The server was built with a different page size.
    #[error("the server has pages of {0} bytes, but pgfresh's servers have pages of 8192 bytes")]
    PageSize(u32),
    /// The server is older than the oldest supported version.
    #[error("the server has version {0}, but pgfresh reads statistics from version 13 on")]
    OldServer(u32),
}

impl ImportError {
    /// Creates an error for a failed query. `part` is the part of the statistics that was being read.
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

/// Describes an error. Omits its detail and context, because they may contain column values.
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
