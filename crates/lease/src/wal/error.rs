//! Errors of reading the log. After any of these, the changes are unknown.

use std::io;
use std::path::PathBuf;

use super::lsn::Lsn;

/// Failure to read on in the log, or an unexpected content.
#[derive(Debug, thiserror::Error)]
pub enum WalError {
    /// The operating system could not read a file of the log.
    #[error("could not {verb} \"{}\"", path.display())]
    Io {
        /// Operation on the file.
        verb: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The log is of a PostgreSQL whose format this module does not know.
    #[error("unknown magic number {0:#06X} in the write-ahead log")]
    Magic(u16),
    /// The server has recovered to another timeline, or the directory is not one of a log.
    #[error("unexpected file \"{0}\" in pg_wal")]
    Timeline(String),
    /// Another page is where this one should be: the server has recycled the file, or has not written the page yet.
    #[error("the write-ahead log has no page at {at}")]
    Gap {
        /// Position of the missing page.
        at: Lsn,
    },
    /// The bytes of a record do not match its CRC-32C.
    #[error("wrong checksum of the write-ahead log record at {at}")]
    Checksum {
        /// Start of the record.
        at: Lsn,
    },
    /// The end of the log lies before the reader's position: the server lost a part of the log in a crash.
    #[error("the write-ahead log ends at {end}, but was read up to {position}")]
    Backwards {
        /// Position of the reader.
        position: Lsn,
        /// End of the log according to the caller.
        end: Lsn,
    },
    /// A page or a record does not follow the format.
    #[error("malformed write-ahead log at {at}: {what}")]
    Malformed {
        /// Start of the page or the record.
        at: Lsn,
        /// Fault in it.
        what: &'static str,
    },
}

impl WalError {
    /// Returns a [`WalError::Malformed`] at `at`.
    pub(super) fn malformed(at: u64, what: &'static str) -> Self {
        Self::Malformed { at: Lsn(at), what }
    }
}
