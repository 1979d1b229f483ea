//! Reads the log record by record and collects the changes. This is the entry point to the `wal` module.

use std::path::Path;

use super::changes::{Changes, SharedChange, UntakenChanges};
use super::classify::{self, classify};
use super::error::WalError;
use super::page::Pages;
use super::record::{Block, Record};
use crate::lsn::Lsn;

/// Reads the log of one server.
#[derive(Debug)]
pub struct WalReader {
    pages: Pages,
    untaken: UntakenChanges,
    /// Start of the next record.
    position: u64,
    /// End of the last record. Usually equal to `position`, unless a page header or (after a switch) the empty rest of
    /// a segment is in between.
    settled: u64,
    /// Start of the last record. `None` before the first record.
    previous: Option<u64>,
    /// Blocks of the current record.
    blocks: Vec<Block>,
    failed: bool,
}

impl WalReader {
    /// Opens the log in the data directory `data` and starts at `position`. The server must have flushed the log up to
    /// this position, which must be the end of a record.
    ///
    /// # Errors
    /// Returns [`WalError`] if the log can't be read at `position`.
    pub fn open(data: &Path, position: Lsn) -> Result<Self, WalError> {
        let pages = Pages::open(data, position.0)?;
        let start = pages.record_start(position.0)?;
        Ok(Self {
            pages,
            untaken: UntakenChanges::default(),
            position: start,
            settled: position.0,
            previous: None,
            blocks: Vec::new(),
            failed: false,
        })
    }

    /// Reads the log up to `end`. The server must have flushed the log up to this position, which must be the end of a
    /// record.
    ///
    /// # Errors
    /// Returns an error if the log has unexpected contents. From then on, all changes since the start are unknown and
    /// every further call fails, so the caller must open a new reader.
    pub fn advance(&mut self, end: Lsn) -> Result<(), WalError> {
        if self.failed {
            return Err(WalError::malformed(self.position, "an earlier read failed"));
        }
        let read = self.read_to(end);
        self.failed = read.is_err();
        read
    }

    fn read_to(&mut self, end: Lsn) -> Result<(), WalError> {
        if end.0 < self.settled {
            return Err(WalError::Backwards { position: Lsn(self.settled), end });
        }
        self.pages.refresh();
        let major = self.pages.major();
        while self.position < end.0 {
            let at = self.position;
            let span = self.pages.record(at, end.0)?;
            let record = Record::parse(span.bytes, at, major, &mut self.blocks)?;
            if self.previous.is_some_and(|previous| previous != record.previous) {
                return Err(WalError::malformed(at, "the record does not follow the one before it"));
            }
            classify(&record, &self.blocks, major, &mut self.untaken)?;
            let switches = classify::is_switch(&record);
            (self.previous, self.settled) = (Some(at), span.end);
            let next = if switches { self.pages.next_segment(at) } else { self.settled };
            self.position = self.pages.record_start(next)?;
        }
        Ok(())
    }

    /// Returns the start of the next record, a position at which a new reader can start.
    #[must_use]
    pub fn position(&self) -> Lsn {
        Lsn(self.position)
    }

    /// Takes the changes in a database since the last call for it.
    pub fn take(&mut self, database: u32) -> Changes {
        self.untaken.take(database)
    }

    /// Returns the changes in a database since the last [`Self::take`] without taking them, or `None` if the log shows
    /// none.
    #[must_use]
    pub fn peek(&self, database: u32) -> Option<&Changes> {
        self.untaken.peek(database)
    }

    /// Returns the oid of the source that this database was copied from, or `None` if the log doesn't show it.
    #[must_use]
    pub fn source(&self, database: u32) -> Option<u32> {
        self.untaken.source(database)
    }

    /// Takes the changes to shared catalogs since the last call. A transaction's changes are included once it has
    /// committed.
    pub fn take_shared(&mut self) -> Vec<SharedChange> {
        self.untaken.take_shared()
    }
}
