//! Estimates the size and height of a B-tree from the rows of its table and the widths of its columns.
//!
//! CREATE INDEX fills leaves to 90 % and the pages above to 70 %, and stores equal keys as one key with a list of rows.
//! Source: `nbtsort.c` and `nbtree.h` of PostgreSQL 13 to 18.

use super::pages::HIGHEST;
use crate::numbers::{aligned, distinct_values};
use crate::statistics::PAGE_SIZE;

/// Size of a page in bytes.
const PAGE: f64 = PAGE_SIZE as f64;
/// Usable bytes of a B-tree page: without its header and its special data.
const USABLE: f64 = PAGE - 24.0 - 16.0;
/// Fill factor of pages above the leaves, in percent.
const INNER_FILL: f64 = 70.0;
/// Size of a line pointer in bytes.
const POINTER: f64 = 4.0;
/// Size of a row's address in a list, in bytes.
const ADDRESS: f64 = 6.0;
/// Maximum size of a key with its list, in bytes. Source: `_bt_load`, a tenth of a page.
const LONGEST_LIST: f64 = 812.0;

/// A column of an index.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct KeyColumn {
    /// `pg_attribute.attlen`: size in bytes, or -1 for a varying size.
    pub(super) length: i16,
    /// Alignment in bytes.
    pub(super) alignment: u8,
    /// Average size of a value in bytes.
    pub(super) width: f64,
    /// Fraction of NULLs.
    pub(super) null_fraction: f64,
    /// Number of distinct values, or minus their number divided by the number of rows.
    pub(super) distinct: f64,
}

/// A B-tree to estimate.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tree {
    /// Columns, those of the key first.
    pub(super) columns: Vec<KeyColumn>,
    /// Number of columns that belong to the key. The others are those of `INCLUDE`.
    pub(super) key_columns: usize,
    /// Number of rows in the index.
    pub(super) rows: f64,
    /// Number of rows in the table.
    pub(super) table_rows: f64,
    /// Fill factor of leaves, in percent.
    pub(super) fill: f64,
    /// Whether equal keys share a tuple: `btm_allequalimage`, and no setting against it.
    pub(super) deduplicates: bool,
}

impl Tree {
    /// Returns the size of a tuple with these columns, without its line pointer.
    fn tuple(columns: &[KeyColumn]) -> f64 {
        let nulls = columns.iter().fold(1.0, |present, column| present * (1.0 - column.null_fraction));
        let header = 8.0 * nulls + 16.0 * (1.0 - nulls);
        let mut data = 0.0_f64;
        for column in columns {
            let is_short = column.length == -1 && column.width < 127.0;
            let alignment = if is_short { 1.0 } else { f64::from(column.alignment) };
            data = (data / alignment).ceil() * alignment + column.width * (1.0 - column.null_fraction);
        }
        aligned(header + data)
    }

    /// Returns the number of distinct keys.
    fn distinct(&self) -> f64 {
        let of = |column: &KeyColumn| {
            let distinct = distinct_values(column.distinct, self.table_rows);
            let null = if column.null_fraction > 0.0 { 1.0 } else { 0.0 };
            if distinct == 0.0 { 200.0 } else { distinct.max(1.0) + null }
        };
        self.columns[..self.key_columns.min(self.columns.len())]
            .iter()
            .map(of)
            .product::<f64>()
            .min(self.rows)
            .max(1.0)
    }

    /// Returns the number of leaves.
    fn leaves(&self) -> f64 {
        let room = USABLE - PAGE * (100.0 - self.fill) / 100.0;
        let tuple = Self::tuple(&self.columns);
        let (distinct, list) = (self.distinct(), ((LONGEST_LIST - tuple) / ADDRESS).floor());
        let repeated = self.rows / distinct;
        if !self.deduplicates || repeated < 1.5 || list < 2.0 {
            return per_page(self.rows, tuple + POINTER, room);
        }
        if repeated > list {
            // Full lists, and one that is not full for each key.
            let lists = self.rows / list + distinct / 2.0;
            return per_page(lists, aligned(LONGEST_LIST - 7.0) + POINTER, room);
        }
        per_page(distinct, aligned(tuple + ADDRESS * repeated) + POINTER, room)
    }

    /// Returns the number of pages and the height.
    pub(super) fn size(&self) -> (u32, u32) {
        if self.rows < 1.0 {
            return (1, 0);
        }
        let (pages, height) = above(self.leaves(), self.fan_out());
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let pages = (pages + 1.0).min(f64::from(u32::MAX - 1)) as u32;
        (pages, height)
    }

    /// Returns the number of pages that a page above the leaves links to.
    fn fan_out(&self) -> f64 {
        let room = USABLE - PAGE * (100.0 - INNER_FILL) / 100.0;
        (room / (self.key() + POINTER)).ceil().max(2.0)
    }

    /// Returns the size of a key above the leaves.
    fn key(&self) -> f64 {
        Self::tuple(&self.columns[..self.key_columns.min(self.columns.len())])
    }

    /// Returns the height of a tree that has `pages` pages in all.
    pub(super) fn height(&self, pages: u32) -> u32 {
        if pages <= 2 {
            return 0;
        }
        let (fan_out, key) = (self.fan_out(), self.key());
        let leaves = (f64::from(pages - 1) * (1.0 - 1.0 / fan_out)).ceil();
        // An index that has grown row by row fills its root before it gets another level.
        if leaves <= (USABLE / (key + POINTER)).floor() { 1 } else { above(leaves, fan_out).1 }
    }
}

/// Returns the number of pages for `count` tuples of this size.
fn per_page(count: f64, size: f64, room: f64) -> f64 {
    (count / (room / size).floor().max(1.0)).ceil().max(1.0)
}

/// Returns the number of pages of a tree with this number of leaves, and its height.
fn above(leaves: f64, fan_out: f64) -> (f64, u32) {
    let (mut level, mut pages, mut height) = (leaves, leaves, 0);
    while level > 1.0 && height < HIGHEST {
        level = (level / fan_out).ceil();
        pages += level;
        height += 1;
    }
    (pages, height)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BIGINT: KeyColumn =
        KeyColumn { length: 8, alignment: 8, width: 8.0, null_fraction: 0.0, distinct: -1.0 };

    fn tree(column: KeyColumn, rows: f64) -> Tree {
        Tree { columns: vec![column], key_columns: 1, rows, table_rows: rows, fill: 90.0, deduplicates: true }
    }

    #[test]
    fn sizes_agree_with_created_indexes() {
        // The numbers are those of PostgreSQL 15.
        assert_eq!(tree(BIGINT, 1e6).size(), (2745, 2));
        assert_eq!(tree(BIGINT, 1e6).height(2745), 2);
        let (pages, height) = tree(KeyColumn { distinct: 10.0, ..BIGINT }, 1e6).size();
        assert!((800..=900).contains(&pages) && height == 2, "{pages} {height}");
        assert_eq!(tree(BIGINT, 0.0).size(), (1, 0));
    }

    #[test]
    fn absurd_numbers_give_a_bounded_size() {
        let wide = KeyColumn { length: -1, alignment: 4, width: 1e9, null_fraction: 0.5, distinct: 0.0 };
        let (pages, height) = tree(wide, 1e13).size();
        assert_eq!(pages, u32::MAX - 1);
        assert!(height <= HIGHEST);
        assert!(tree(wide, 5.0).height(u32::MAX) <= HIGHEST);
    }
}
