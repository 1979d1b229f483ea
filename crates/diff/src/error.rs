//! Why there is no comparison.

use server::SessionError;

/// A comparison failed.
#[derive(Debug, thiserror::Error)]
pub enum DiffError {
    /// A session ended, or a catalog could not be read.
    #[error("could not read the {side}")]
    Session {
        /// "database" or "template".
        side: &'static str,
        /// What the server said.
        source: SessionError,
    },
    /// They are not of one encoding, so that no text of theirs is the same.
    #[error("cannot compare databases of different encodings: {template} and {database}")]
    Encodings {
        /// The template's.
        template: String,
        /// The database's.
        database: String,
    },
    /// Neither has the one table that was asked for.
    #[error("neither the database nor its template has a table \"{0}\"")]
    UnknownTable(String),
}

impl DiffError {
    /// The SQLSTATE that a client should see. Source: the manual's appendix A.
    #[must_use]
    pub fn sqlstate(&self) -> &str {
        match self {
            Self::Session { source: SessionError::Server { sqlstate, .. }, .. } => sqlstate,
            Self::Session { .. } => "08006",
            Self::Encodings { .. } => "0A000",
            Self::UnknownTable(_) => "42P01",
        }
    }

    /// What came back.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Session { source, .. } => {
                Some(source.detail().unwrap_or_else(|| format!("The server's answer: {source}.")))
            }
            _ => None,
        }
    }

    /// What to do.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Session { source: SessionError::Server { sqlstate, .. }, .. } if sqlstate == "57P01" => {
                Some("A database that is released meanwhile cannot be read on.".to_owned())
            }
            Self::UnknownTable(_) => {
                Some("Write it with its schema, as the list of tables has it: public.orders.".to_owned())
            }
            _ => None,
        }
    }
}
