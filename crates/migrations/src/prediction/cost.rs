//! Estimates how many seconds and how many disk pages a statement's work takes.

use std::ops::AddAssign;

use super::Prediction;
use crate::Speeds;
use crate::sizes::{PAGE, ProductionTable, entry_pages};

/// Throughput of the slowest disk that a prediction considers, in bytes per second: a general-purpose network disk in a
/// cloud.
pub(super) const DISK: f64 = 250e6;
/// Factors that turn measured speeds into the ends of the range. Production tables don't fit in CPU caches, and the
/// production server is busy.
const FASTER: f64 = 0.7;
const SLOWER: f64 = 1.6;
/// Factor for building a B-tree if parallel workers help, or if the keys are already sorted.
const PARALLEL: f64 = 0.5;
/// Factor for a sort that spills to temporary files.
const EXTERNAL: f64 = 1.3;
/// Factor for checking a foreign key if its hash table doesn't fit in memory.
const LARGE_HASH: f64 = 3.0;
/// Factors for adding index entries for many rows. If an index is larger than the buffers, almost every entry reads and
/// writes a page.
const ORDERED_ENTRIES: f64 = 1.0;
const RANDOM_ENTRIES: f64 = 4.0;
/// Time for deleting a row, relative to writing a new row version.
const DELETE: f64 = 0.5;
/// Factor for writing many new row versions, because the log contains full pages after each checkpoint.
const WHOLE_PAGES: f64 = 2.0;
/// Factor for building an index that isn't a B-tree.
const OTHER_METHOD: f64 = 8.0;
/// Width of a number in an index, in bytes. Wider keys are assumed to be text, which is slower to compare.
const NUMBER: f64 = 8.0;
/// Assumed width of an expression in bytes, which is also the planner's assumption.
pub(super) const EXPRESSION: f64 = 32.0;

/// Work of a statement: seconds if all data is in memory, and pages that a disk has to transfer.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Cost {
    /// Lower end of the range, in seconds.
    pub(super) low: f64,
    /// Upper end of the range, in seconds, without disk time.
    pub(super) high: f64,
    /// Number of pages that a disk has to read or write.
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

    /// Multiplies the lower end by `low`, and the upper end and the pages by `high`.
    pub(super) fn between(self, low: f64, high: f64) -> Self {
        Self { low: self.low * low, high: self.high * high, pages: self.pages * high }
    }

    /// Returns the predicted range in seconds.
    pub(super) fn prediction(self) -> Prediction {
        // The kernel reads ahead and writes later, so disk and processor work concurrently, and the slower of both
        // counts.
        let disk = self.high + self.pages * PAGE / DISK;
        Prediction { low: self.low * FASTER, high: disk.max(self.high * SLOWER) }
    }
}

/// Estimates work on a production table.
pub(super) struct Table<'a> {
    pub(super) speeds: &'a Speeds,
    pub(super) table: &'a ProductionTable,
}

impl Table<'_> {
    pub(super) fn rows(&self) -> f64 {
        self.table.rows.unwrap_or(0.0)
    }

    /// Widens a cost by the uncertainty of the table size.
    fn spread(&self, cost: Cost) -> Cost {
        cost.between(1.0 / self.table.spread, self.table.spread)
    }

    /// Returns the cost of reading all rows. `is_cached` means that the statement has already read or written them.
    pub(super) fn scan(&self, is_cached: bool) -> Cost {
        let pages = self.table.pages;
        let seconds = pages * self.speeds.scan_page + self.rows() * self.speeds.scan_row;
        self.spread(Cost::of(seconds, if is_cached { 0.0 } else { pages }))
    }

    /// Returns the cost of copying all rows into new files. The disk reads the old pages, and writes the new pages and
    /// their log records.
    pub(super) fn rewrite(&self) -> Cost {
        let pages = self.table.pages + self.table.toast_pages;
        let seconds = pages * self.speeds.rewrite_page + self.rows() * self.speeds.rewrite_row;
        self.spread(Cost::of(seconds, 3.0 * pages))
    }

    /// Returns the cost of sorting entries of `width` bytes into an index of `pages` pages, without reading the table.
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
            // A BRIN index has only one entry for many pages.
            "brin" => Cost::default(),
            _ => cost.between(1.0, OTHER_METHOD),
        })
    }

    /// Returns the cost of checking that each row of this table has its referenced row in another table.
    pub(super) fn reference(&self) -> Cost {
        self.spread(Cost::of(self.rows() * self.speeds.reference_row, 0.0).between(PARALLEL, LARGE_HASH))
    }

    /// Returns the cost of deleting a fraction of the rows. Their index entries stay until VACUUM removes them.
    pub(super) fn delete(&self, fraction: f64) -> Cost {
        let (rows, pages) = (self.rows() * fraction, self.table.pages * fraction);
        let seconds = pages * self.speeds.rewrite_page + rows * self.speeds.update_row;
        self.spread(Cost::of(seconds, 2.0 * pages).between(DELETE, WHOLE_PAGES))
    }

    /// Returns the cost of writing new versions of a fraction of the rows, each with a new entry in every index.
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
