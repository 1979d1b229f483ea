//! Reads the log record by record and keeps what it says.

use std::path::Path;

use super::changes::{Changes, SharedChange, UntakenChanges};
use super::classify::{self, classify};
use super::error::WalError;
use super::lsn::Lsn;
use super::page::Pages;
use super::record::{Block, Record};

/// Follows the log of one server.
#[derive(Debug)]
pub struct WalReader {
    pages: Pages,
    untaken: UntakenChanges,
    /// Where the next record will start.
    position: u64,
    /// Where the last one ended; less than `position` by a page's header or by what a switch of segments left empty.
    settled: u64,
    /// Where the last one started, once known.
    previous: Option<u64>,
    /// The blocks of the current record.
    blocks: Vec<Block>,
    failed: bool,
}

impl WalReader {
    /// Starts at a position at which a record ends, and up to which the log is written. `data` is the data directory.
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

    /// Reads on to `end`, at which a record ends, and up to which the log is written.
    ///
    /// # Errors
    /// The log is not what was expected. What changed since the start is then unknown in all databases, and every
    /// further call fails: open a new reader.
    pub fn advance(&mut self, end: Lsn) -> Result<(), WalError> {
        if self.failed {
            return Err(WalError::malformed(self.position, "an earlier attempt to read on has failed"));
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

    /// Where the next record will start: a position to open another reader at.
    #[must_use]
    pub fn position(&self) -> Lsn {
        Lsn(self.position)
    }

    /// What changed in a database since the last call; leaves nothing.
    pub fn take(&mut self, database: u32) -> Changes {
        self.untaken.take(database)
    }

    /// What changed in a database since the last [`Self::take`]; `None` if the log does not name it.
    #[must_use]
    pub fn peek(&self, database: u32) -> Option<&Changes> {
        self.untaken.peek(database)
    }

    /// Of which database the files of one were copied; `None` if the log has not told.
    #[must_use]
    pub fn source(&self, database: u32) -> Option<u32> {
        self.untaken.source(database)
    }

    /// What changed of the catalogs that all databases share, in transactions that have committed since the last call.
    pub fn take_shared(&mut self) -> Vec<SharedChange> {
        self.untaken.take_shared()
    }
}
