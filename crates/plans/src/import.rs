//! Reads statistics from production's server, or from a file.
//!
//! The server is read in one read-only transaction with one snapshot, which takes no lock beyond ACCESS SHARE and waits
//! for none longer than a second. All queries use the simple protocol and leave no state in the session, so that a pooler
//! may give the session to other clients afterwards. Neither errors nor logs contain values of columns.

mod array;
mod catalog;
mod columns;
mod extended;
mod password_file;
mod server;
mod session;
mod tls;

use crate::{RelationName, Statistics};

pub(crate) use array::{numbers, values};
pub(crate) use catalog::MOST_PAGES;
pub use server::StatisticsServer;

/// Statistics that were read, and a list of what could not be read.
#[derive(Debug)]
pub struct Import {
    /// Statistics, in the order of names.
    pub statistics: Statistics,
    /// Relations with incomplete statistics.
    pub gaps: Gaps,
}

/// Relations whose statistics are incomplete.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// Tables whose columns the role may not read.
    pub without_privilege: Vec<RelationName>,
    /// Tables whose statistics row-level security hides from the role.
    pub row_security: Vec<RelationName>,
    /// Relations that another session had locked: they have neither their real size nor a definition.
    pub locked: Vec<RelationName>,
    /// Tables and materialized views that have never been analyzed.
    pub never_analyzed: Vec<RelationName>,
    /// Objects of CREATE STATISTICS whose contents the server does not show.
    pub extended: Vec<RelationName>,
}

impl Gaps {
    fn sort(&mut self) {
        let Self { without_privilege, row_security, locked, never_analyzed, extended } = self;
        for names in [without_privilege, row_security, locked, never_analyzed, extended] {
            names.sort();
        }
    }
}

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
    /// The server reports an error.
    #[error("could not read {part}: {reason}")]
    Query {
        /// Part of the statistics.
        part: &'static str,
        /// PostgreSQL's message with its SQLSTATE, or the connection's error.
        reason: String,
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
    /// Returns advice for the user.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Url(_) => {
                "Write postgresql://USER@HOST:PORT/DATABASE?sslmode=MODE, and put the password into PGPASSWORD or \
                 ~/.pgpass."
            }
            Self::Query { reason, .. } if reason.ends_with("(57014)") => {
                "Each query may take a minute. Try again when the server has less to do, or read from a standby."
            }
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

/// Reads the statistics of the database.
///
/// # Errors
///
/// Returns an error if the server cannot be reached, or a query fails or takes longer than a minute.
pub fn read(server: &StatisticsServer) -> Result<Import, ImportError> {
    let mut session = session::Session::open(server)?;
    let facts = session.begin()?;
    let settings = session.settings()?;
    session.bound()?;
    let mut gaps = Gaps::default();
    let mut relations = catalog::relations(&mut session, &mut gaps)?;
    columns::read(&mut session, facts.version, &mut relations)?;
    let extended = extended::read(&mut session, facts.version, &mut gaps)?;
    session.end()?;
    gaps.sort();
    let mut statistics = Statistics {
        format: crate::statistics::FORMAT,
        server_version: facts.version,
        taken: facts.taken,
        settings,
        relations: relations.into_statistics(),
        extended,
    };
    statistics.sort();
    Ok(Import { statistics, gaps })
}
