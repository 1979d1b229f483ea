//! Defines the errors that a comparison returns.

use server::SessionError;

/// Errors that stop a comparison.
#[derive(Debug, thiserror::Error)]
pub enum DiffError {
    /// A session ended, or a catalog couldn't be read.
    #[error("could not read the {side}")]
    Session {
        /// The affected side of the comparison: "database" or "template".
        side: &'static str,
        /// The session's error.
        source: SessionError,
    },
    /// The databases have different encodings, so the bytes of equal texts differ.
    #[error("cannot compare databases with different encodings: {template} and {database}")]
    Encodings {
        /// Encoding of the template.
        template: String,
        /// Encoding of the database.
        database: String,
    },
    /// Neither side has the table in the limits.
    #[error("neither the database nor its template has a table \"{0}\"")]
    UnknownTable(String),
}

impl DiffError {
    /// Returns the SQLSTATE for clients. Source: appendix A of the PostgreSQL manual.
    #[must_use]
    pub fn sqlstate(&self) -> &str {
        match self {
            Self::Session { source: SessionError::Server { sqlstate, .. }, .. } => sqlstate,
            Self::Session { .. } => "08006",
            Self::Encodings { .. } => "0A000",
            Self::UnknownTable(_) => "42P01",
        }
    }

    /// Returns details about the error, such as the server's own message.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Session { source, .. } => {
                Some(source.detail().unwrap_or_else(|| format!("The server's response: {source}.")))
            }
            _ => None,
        }
    }

    /// Returns advice for the user.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Session { source: SessionError::Server { sqlstate, .. }, .. } if sqlstate == "57P01" => {
                Some("The comparison cannot continue after the database is released.".to_owned())
            }
            Self::UnknownTable(_) => Some("Write it with its schema, for example public.orders.".to_owned()),
            _ => None,
        }
    }
}
