//! Why the log could not be read. After any of these, what changed is unknown.

use std::io;
use std::path::PathBuf;

use super::lsn::Lsn;

/// The log could not be read on, or is not what was expected.
#[derive(Debug, thiserror::Error)]
pub enum WalError {
    /// A file of the log could not be read.
    #[error("could not {verb} \"{}\"", path.display())]
    Io {
        /// What was tried.
        verb: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The log is of a PostgreSQL whose format is not known here.
    #[error("unknown magic number {0:#06X} in the write-ahead log")]
    Magic(u16),
    /// The server has recovered to another timeline, or the directory is not one of a log.
    #[error("unexpected file \"{0}\" in pg_wal")]
    Timeline(String),
    /// The page that should be here is another one: the file was recycled, or is not written yet.
    #[error("the write-ahead log has no page at {at}")]
    Gap {
        /// Where the page should be.
        at: Lsn,
    },
    /// The bytes of a record do not match its CRC-32C.
    #[error("wrong checksum of the write-ahead log record at {at}")]
    Checksum {
        /// Where the record starts.
        at: Lsn,
    },
    /// The end of the log lies before what was read already: the server lost a part of the log in a crash.
    #[error("the write-ahead log ends at {end}, but was read up to {position}")]
    Backwards {
        /// Up to where it was read.
        position: Lsn,
        /// Where it is said to end.
        end: Lsn,
    },
    /// A page or a record is not as the format has it.
    #[error("malformed write-ahead log at {at}: {what}")]
    Malformed {
        /// Where the page or the record starts.
        at: Lsn,
        /// What is wrong.
        what: &'static str,
    },
}

impl WalError {
    /// A [`WalError::Malformed`] at `at`.
    pub(super) fn malformed(at: u64, what: &'static str) -> Self {
        Self::Malformed { at: Lsn(at), what }
    }
}
