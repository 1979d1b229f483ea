//! Estimates the size and height of a B-tree from its table's row count and its columns' widths.
//!
//! CREATE INDEX fills leaf pages to 90 % and inner pages to 70 %. It stores equal keys as a single key with a list of
//! row addresses. Source: `nbtsort.c` and `nbtree.h` of PostgreSQL 13 to 18.

use super::pages::HIGHEST;
use crate::numbers::{aligned, distinct_values};
use crate::statistics::PAGE_SIZE;

/// Page size in bytes.
const PAGE: f64 = PAGE_SIZE as f64;
/// Usable bytes of a B-tree page: without its page header and its special data.
const USABLE: f64 = PAGE - 24.0 - 16.0;
/// Fill factor of inner pages in percent.
const INNER_FILL: f64 = 70.0;
/// Size of a line pointer in bytes.
const POINTER: f64 = 4.0;
/// Size of a row address in a list, in bytes.
const ADDRESS: f64 = 6.0;
/// Maximum size of a key with its list of row addresses, in bytes: a tenth of a page. Source: `_bt_load`.
const LONGEST_LIST: f64 = 812.0;

/// An index column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct KeyColumn {
    /// `pg_attribute.attlen`: the size in bytes, or -1 for types of variable size.
    pub(super) length: i16,
    /// Alignment in bytes.
    pub(super) alignment: u8,
    /// Average size of a value in bytes.
    pub(super) width: f64,
    /// Fraction of NULLs, from 0 to 1.
    pub(super) null_fraction: f64,
    /// Number of distinct values or, if negative, minus their ratio to the row count.
    pub(super) distinct: f64,
}

/// Properties of a B-tree whose size is estimated.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tree {
    /// Index columns, key columns first.
    pub(super) columns: Vec<KeyColumn>,
    /// Number of key columns. The remaining columns come from `INCLUDE`.
    pub(super) key_columns: usize,
    /// Number of rows in the index.
    pub(super) rows: f64,
    /// Number of rows in the table.
    pub(super) table_rows: f64,
    /// Fill factor of leaf pages in percent.
    pub(super) fill: f64,
    /// Whether equal keys share a tuple: `btm_allequalimage` is true and deduplication isn't turned off.
    pub(super) deduplicates: bool,
}

impl Tree {
    /// Returns the size of a tuple with `columns`, without its line pointer.
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

    /// Returns the number of leaf pages.
    fn leaves(&self) -> f64 {
        let room = USABLE - PAGE * (100.0 - self.fill) / 100.0;
        let tuple = Self::tuple(&self.columns);
        let (distinct, list) = (self.distinct(), ((LONGEST_LIST - tuple) / ADDRESS).floor());
        let repeated = self.rows / distinct;
        if !self.deduplicates || repeated < 1.5 || list < 2.0 {
            return per_page(self.rows, tuple + POINTER, room);
        }
        if repeated > list {
            // Full lists and, for each key, a list that is half full on average.
            let lists = self.rows / list + distinct / 2.0;
            return per_page(lists, aligned(LONGEST_LIST - 7.0) + POINTER, room);
        }
        per_page(distinct, aligned(tuple + ADDRESS * repeated) + POINTER, room)
    }

    /// Returns the page count and the height.
    pub(super) fn size(&self) -> (u32, u32) {
        if self.rows < 1.0 {
            return (1, 0);
        }
        let (pages, height) = above(self.leaves(), self.fan_out());
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let pages = (pages + 1.0).min(f64::from(u32::MAX - 1)) as u32;
        (pages, height)
    }

    /// Returns the number of child pages that an inner page links to.
    fn fan_out(&self) -> f64 {
        let room = USABLE - PAGE * (100.0 - INNER_FILL) / 100.0;
        (room / (self.key() + POINTER)).ceil().max(2.0)
    }

    /// Returns the size of a key in an inner page.
    fn key(&self) -> f64 {
        Self::tuple(&self.columns[..self.key_columns.min(self.columns.len())])
    }

    /// Returns the height of a tree with `pages` pages, including the metapage.
    pub(super) fn height(&self, pages: u32) -> u32 {
        if pages <= 2 {
            return 0;
        }
        let (fan_out, key) = (self.fan_out(), self.key());
        let leaves = (f64::from(pages - 1) * (1.0 - 1.0 / fan_out)).ceil();
        // An index that grows row by row fills its root before it adds a level.
        if leaves <= (USABLE / (key + POINTER)).floor() { 1 } else { above(leaves, fan_out).1 }
    }
}

/// Returns the number of pages for `count` tuples of `size` bytes, if each page has room for `room` bytes.
fn per_page(count: f64, size: f64, room: f64) -> f64 {
    (count / (room / size).floor().max(1.0)).ceil().max(1.0)
}

/// Returns the number of leaf and inner pages, and the height, of a tree with `leaves` leaf pages.
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
        // Expected values from PostgreSQL 15.
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
