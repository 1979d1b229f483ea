//! Defines the errors that prevent pgfresh from profiling a server.

use std::io;

/// Why pgfresh can't profile a server.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The text isn't a valid server URL.
    #[error("cannot read the URL of the server")]
    Url(#[source] postgres::Error),
    /// The URL requires encryption, which profiling doesn't support.
    #[error("cannot observe this server: it requires encryption (sslmode=require)")]
    Encryption,
    /// The connection failed.
    #[error("could not connect to the server")]
    Connect(#[source] postgres::Error),
    /// One of the profiler's queries failed.
    #[error("could not read {what}")]
    Ask {
        /// The object read by the query.
        what: &'static str,
        /// The server's or the connection's error.
        source: postgres::Error,
    },
    /// The server is too old.
    #[error("cannot observe PostgreSQL {0}: pgfresh supports version 13 and later")]
    TooOld(String),
    /// The server didn't respond in time.
    #[error("could not finish the profile: the server has not responded for {0} s")]
    NoAnswer(u64),
    /// The sampling thread couldn't be started.
    #[error("could not start a thread")]
    Thread(#[source] io::Error),
}

impl ProfileError {
    /// Returns the DETAIL of the server's error, if any.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Connect(source) | Self::Ask { source, .. } => {
                source.as_db_error().and_then(|error| error.detail().map(str::to_owned))
            }
            _ => None,
        }
    }

    /// Returns advice for the user, if any.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Url(_) => Some("Write postgresql://USER:PASSWORD@HOST:PORT/DATABASE.".to_owned()),
            Self::Encryption => {
                Some("Connect without encryption, for example over its unix socket.".to_owned())
            }
            Self::Connect(_) => Some(
                "Check that it listens there, and that the user may connect to that database.".to_owned(),
            ),
            Self::NoAnswer(_) => {
                Some("\"ps\" shows whether its processes are stopped (T) or wait for a disk (D).".to_owned())
            }
            Self::Ask { .. } | Self::TooOld(_) | Self::Thread(_) => None,
        }
    }
}

pub(crate) fn explain(error: &postgres::Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), |error| error.message().to_owned())
}
