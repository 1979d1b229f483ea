//! What can go wrong on the way to a profile.

use std::io;

/// A server could not be watched.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The text is no URL of a server.
    #[error("cannot read the URL of the server")]
    Url(#[source] postgres::Error),
    /// It wants more than we speak.
    #[error("cannot watch this server: it demands encryption (sslmode=require)")]
    Encryption,
    /// No session came to be.
    #[error("could not connect to the server")]
    Connect(#[source] postgres::Error),
    /// A question of ours was not answered.
    #[error("could not read {what}")]
    Ask {
        /// Of what.
        what: &'static str,
        /// What came back.
        source: postgres::Error,
    },
    /// It is too old.
    #[error("cannot watch PostgreSQL {0}: majors from 13 on show what is needed")]
    TooOld(String),
    /// It takes too long.
    #[error("could not end the profile: the server has not answered for {0} s")]
    NoAnswer(u64),
    /// There is no thread.
    #[error("could not start a thread")]
    Thread(#[source] io::Error),
}

impl ProfileError {
    /// What the server gave as detail.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Connect(source) | Self::Ask { source, .. } => {
                source.as_db_error().and_then(|error| error.detail().map(str::to_owned))
            }
            _ => None,
        }
    }

    /// What to do.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Url(_) => Some("Write postgresql://USER:PASSWORD@HOST:PORT/DATABASE.".to_owned()),
            Self::Encryption => {
                Some("Connect from where it lets you in without, such as its unix socket.".to_owned())
            }
            Self::Connect(_) => {
                Some("See that it listens there, and that the user may connect to that database.".to_owned())
            }
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
