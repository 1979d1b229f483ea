//! Defines the errors that occur while reading the write-ahead log.
//! After an error, pgfresh no longer knows what clients changed.

use std::io;
use std::path::PathBuf;

use crate::lsn::Lsn;

/// The log couldn't be read or has unexpected contents.
#[derive(Debug, thiserror::Error)]
pub enum WalError {
    /// The operating system couldn't read a log file.
    #[error("could not {verb} \"{}\"", path.display())]
    Io {
        /// The operation that failed.
        verb: &'static str,
        /// Path of the log file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The log comes from a PostgreSQL version whose format isn't supported.
    #[error("unknown magic number {0:#06X} in the write-ahead log")]
    Magic(u16),
    /// The server recovered to a new timeline, or the directory doesn't contain a log.
    #[error("unexpected file \"{0}\" in pg_wal")]
    Timeline(String),
    /// The expected page is missing, because the server has recycled the file or hasn't written the page yet.
    #[error("the write-ahead log has no page at {at}")]
    Gap {
        /// Position of the missing page.
        at: Lsn,
    },
    /// A record's bytes don't match its CRC-32C.
    #[error("wrong checksum of the write-ahead log record at {at}")]
    Checksum {
        /// Start of the record.
        at: Lsn,
    },
    /// The log ends before the reader's position, because a crash made the server lose part of the log.
    #[error("the write-ahead log ends at {end}, but was read up to {position}")]
    Backwards {
        /// The reader's position.
        position: Lsn,
        /// End of the log according to the caller.
        end: Lsn,
    },
    /// A page or a record violates the format.
    #[error("malformed write-ahead log at {at}: {what}")]
    Malformed {
        /// Start of the page or the record.
        at: Lsn,
        /// The violation.
        what: &'static str,
    },
}

impl WalError {
    /// Returns a [`WalError::Malformed`] for this position.
    pub(super) fn malformed(at: u64, what: &'static str) -> Self {
        Self::Malformed { at: Lsn(at), what }
    }
}
