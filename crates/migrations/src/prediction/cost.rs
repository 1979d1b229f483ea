//! Seconds and pages of a statement's work.

use std::ops::AddAssign;

use super::Prediction;
use crate::Speeds;
use crate::sizes::{PAGE, ProductionTable, entry_pages};

/// Throughput of the slowest disk, in bytes per second: a network disk for general purposes in a cloud.
pub(super) const DISK: f64 = 250e6;
/// Factors from the measured speeds to the ends of the range. Tables of production miss the processor's caches, and its
/// server is busy.
const FASTER: f64 = 0.7;
const SLOWER: f64 = 1.6;
/// Factor by which parallel workers, and keys in order, speed up the build of a B-tree.
const PARALLEL: f64 = 0.5;
/// Factor for a sort that needs temporary files.
const EXTERNAL: f64 = 1.3;
/// Factor for the check of a foreign key whose hash table exceeds the memory.
const LARGE_HASH: f64 = 3.0;
/// Factors for index entries of many rows. An index that is larger than the buffers reads and writes a page for almost
/// every entry.
const ORDERED_ENTRIES: f64 = 1.0;
const RANDOM_ENTRIES: f64 = 4.0;
/// Factor for the time of deleting a row, compared with writing a new version.
const DELETE: f64 = 0.5;
/// Factor for new versions of many rows. After each checkpoint, the log contains whole pages.
const WHOLE_PAGES: f64 = 2.0;
/// Factor for an index that is no B-tree.
const OTHER_METHOD: f64 = 8.0;
/// Size of a number in an index, in bytes. Wider keys are compared as texts.
const NUMBER: f64 = 8.0;
/// Assumed width of an expression, in bytes. The planner assumes the same.
pub(super) const EXPRESSION: f64 = 32.0;

/// Work of a statement, in seconds of this machine's memory and in pages of a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Cost {
    /// Fewest seconds.
    pub(super) low: f64,
    /// Most seconds, without the disk.
    pub(super) high: f64,
    /// Number of pages that a disk reads or writes.
    pub(super) pages: f64,
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.low += other.low;
        self.high += other.high;
        self.pages += other.pages;
    }
}

impl Cost {
    fn of(seconds: f64, pages: f64) -> Self {
        Self { low: seconds, high: seconds, pages }
    }

    /// Scales the low end by `low`, the high end and the pages by `high`.
    pub(super) fn between(self, low: f64, high: f64) -> Self {
        Self { low: self.low * low, high: self.high * high, pages: self.pages * high }
    }

    /// Returns the range of seconds.
    pub(super) fn prediction(self) -> Prediction {
        // The kernel reads ahead and writes later, so the disk works at the same time as the processor.
        let disk = self.high + self.pages * PAGE / DISK;
        Prediction { low: self.low * FASTER, high: disk.max(self.high * SLOWER) }
    }
}

/// Work on a table of production.
pub(super) struct Table<'a> {
    pub(super) speeds: &'a Speeds,
    pub(super) table: &'a ProductionTable,
}

impl Table<'_> {
    pub(super) fn rows(&self) -> f64 {
        self.table.rows.unwrap_or(0.0)
    }

    /// Spreads a cost by the uncertainty of the table's size.
    fn spread(&self, cost: Cost) -> Cost {
        cost.between(1.0 / self.table.spread, self.table.spread)
    }

    /// Reads all rows. `is_cached` means that the statement has read or written them before.
    pub(super) fn scan(&self, is_cached: bool) -> Cost {
        let pages = self.table.pages;
        let seconds = pages * self.speeds.scan_page + self.rows() * self.speeds.scan_row;
        self.spread(Cost::of(seconds, if is_cached { 0.0 } else { pages }))
    }

    /// Copies all rows into new files. The disk reads the old pages, and writes the new pages and their log.
    pub(super) fn rewrite(&self) -> Cost {
        let pages = self.table.pages + self.table.toast_pages;
        let seconds = pages * self.speeds.rewrite_page + self.rows() * self.speeds.rewrite_row;
        self.spread(Cost::of(seconds, 3.0 * pages))
    }

    /// Sorts entries of this width into an index of this number of pages, without reading the table.
    pub(super) fn build(&self, width: f64, pages: Option<f64>, method: &str) -> Cost {
        let rows = self.rows();
        let (number, text) = (self.speeds.sort_number, self.speeds.sort_text);
        let steps = rows * rows.max(2.0).log2();
        let pages = 2.0 * pages.unwrap_or_else(|| entry_pages(rows, width));
        let low = if width <= 2.0 * NUMBER { number } else { text } * steps;
        let high = if width <= NUMBER { number } else { text } * steps;
        let cost = Cost { low, high, pages };
        self.spread(match method {
            "btree" => cost.between(PARALLEL, EXTERNAL),
            // A BRIN index has an entry for many pages.
            "brin" => Cost::default(),
            _ => cost.between(1.0, OTHER_METHOD),
        })
    }

    /// Checks each row of this table against the rows of another one.
    pub(super) fn reference(&self) -> Cost {
        self.spread(Cost::of(self.rows() * self.speeds.reference_row, 0.0).between(PARALLEL, LARGE_HASH))
    }

    /// Deletes a fraction of the rows. Their index entries stay for VACUUM.
    pub(super) fn delete(&self, fraction: f64) -> Cost {
        let (rows, pages) = (self.rows() * fraction, self.table.pages * fraction);
        let seconds = pages * self.speeds.rewrite_page + rows * self.speeds.update_row;
        self.spread(Cost::of(seconds, 2.0 * pages).between(DELETE, WHOLE_PAGES))
    }

    /// Writes new versions of a fraction of the rows, with an entry in each index.
    pub(super) fn update(&self, fraction: f64) -> Cost {
        let (rows, pages) = (self.rows() * fraction, self.table.pages * fraction);
        let indexes = report::as_f64(self.table.indexes.len());
        let own = pages * self.speeds.rewrite_page + rows * self.speeds.update_row;
        let entries = rows * indexes * self.speeds.index_entry;
        let index_pages: f64 = self.table.indexes.values().map(|index| index.pages).sum();
        let cost = Cost {
            low: own + ORDERED_ENTRIES * entries,
            high: WHOLE_PAGES * own + RANDOM_ENTRIES * entries,
            pages: 3.0 * pages + 2.0 * index_pages * fraction,
        };
        self.spread(cost)
    }
}
