//! Writes the index pages that the planner reads: the metapage of a B-tree, a tree below it that has a height but no
//! rows, and the metapage of a BRIN index.
//!
//! The planner reads a B-tree's height from its metapage. It also searches the tree for a column's lowest and highest
//! value, so the tree must be valid: each level is a single page with a single downlink, and the leaf page is empty.
//! The planner then doesn't find a value and uses the histogram instead.
//!
//! Source: `bufpage.h`, `itup.h`, `nbtree.h` and `brin_page.h` of PostgreSQL 13 to 18. Numbers have the machine's byte
//! order.

use crate::statistics::PAGE_SIZE;

/// Page size in bytes. [`super::Scratch::start`] rejects servers with a different page size.
pub(super) const PAGE: usize = PAGE_SIZE as usize;
/// Maximum height of a B-tree that pgfresh writes. Even an index with 2^32 pages is much lower.
pub(super) const HIGHEST: u32 = 20;

/// Page header size in bytes.
const HEADER: usize = 24;
/// Size of the special data at the end of a B-tree page, in bytes.
const SPECIAL: usize = 16;
/// Size of a line pointer, and of a tuple without values, in bytes.
const POINTER: usize = 4;
const TUPLE: usize = 8;
/// Offsets in the page header: checksum, end of the line pointers, start of the tuples, start of the special data, page
/// size and layout version.
const CHECKSUM: usize = 8;
const LOWER: usize = 12;
const UPPER: usize = 14;
const SPECIAL_START: usize = 16;
const SIZE_AND_VERSION: usize = 18;
/// Version of the page layout.
const LAYOUT: usize = 4;
/// Flags of B-tree pages.
const LEAF: u16 = 1;
const ROOT: u16 = 2;
/// Marks a tuple whose item pointer is reused for another purpose: here, a downlink without key columns.
const LINK: u16 = 0x2000;
/// State of a line pointer that points to a tuple.
const NORMAL: u32 = 1;
/// Magic numbers at the start of the metapages of a B-tree and of a BRIN index.
const BTREE_MAGIC: u32 = 0x0005_3162;
const BRIN_MAGIC: u32 = 0xA810_9CFA;
/// Number of page ranges that fit into a page of a BRIN index's range map.
const RANGES_IN_PAGE: u32 = 1360;

fn put_u16(page: &mut [u8], at: usize, value: u16) {
    page[at..at + 2].copy_from_slice(&value.to_ne_bytes());
}

fn put_u32(page: &mut [u8], at: usize, value: u32) {
    page[at..at + 4].copy_from_slice(&value.to_ne_bytes());
}

fn u32_at(page: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(page.get(at..at + 4)?.try_into().ok()?))
}

/// Changes a B-tree's metapage so that the first page of [`tree`] is the root. Without a height, the B-tree has no
/// root. Returns false if `metapage` isn't a B-tree's metapage.
pub(super) fn point_to_tree(metapage: &mut [u8], height: Option<u32>) -> bool {
    if metapage.len() != PAGE || u32_at(metapage, HEADER) != Some(BTREE_MAGIC) {
        return false;
    }
    // Root and level, followed by the fast root and its level. Both are the same here.
    let (root, height) = (u32::from(height.is_some()), height.unwrap_or(0));
    for (index, value) in [root, height, root, height].into_iter().enumerate() {
        put_u32(metapage, HEADER + 8 + 4 * index, value);
    }
    put_u16(metapage, CHECKSUM, 0);
    true
}

/// Returns the pages of a tree with the given height, from the root (page 1) to the empty leaf page. A tree of height 0
/// is a single page.
pub(super) fn tree(height: u32) -> Vec<u8> {
    (0..=height).rev().flat_map(|level| tree_page(level, height)).collect()
}

fn tree_page(level: u32, height: u32) -> Vec<u8> {
    let mut page = vec![0; PAGE];
    let special = PAGE - SPECIAL;
    let (lower, upper) = if level == 0 { (HEADER, special) } else { (HEADER + POINTER, special - TUPLE) };
    #[allow(clippy::cast_possible_truncation)]
    for (at, value) in
        [(LOWER, lower), (UPPER, upper), (SPECIAL_START, special), (SIZE_AND_VERSION, PAGE | LAYOUT)]
    {
        put_u16(&mut page, at, value as u16);
    }
    if level > 0 {
        #[allow(clippy::cast_possible_truncation)]
        put_u32(&mut page, HEADER, upper as u32 | NORMAL << 15 | (TUPLE as u32) << 17);
        // The downlink: upper and lower half of the child's page number, number of key columns, and size with flags.
        let below = height - level + 2;
        #[allow(clippy::cast_possible_truncation)]
        for (index, value) in [0, below as u16, 0, TUPLE as u16 | LINK].into_iter().enumerate() {
            put_u16(&mut page, upper + 2 * index, value);
        }
    }
    // The links to the left and right siblings stay 0, which means that there are none.
    put_u32(&mut page, special + 8, level);
    let flags = if level == 0 { LEAF } else { 0 } | if level == height { ROOT } else { 0 };
    put_u16(&mut page, special + 12, flags);
    page
}

/// Changes a BRIN index's metapage so that its range map fits a table with `pages` pages. Returns false if `metapage`
/// isn't a BRIN index's metapage.
pub(super) fn size_map(metapage: &mut [u8], pages: u32) -> bool {
    let in_range = u32_at(metapage, HEADER + 8).filter(|pages| *pages > 0);
    let (Some(BRIN_MAGIC), Some(in_range)) = (u32_at(metapage, HEADER), in_range) else { return false };
    let ranges = pages.div_ceil(in_range).max(1);
    // Number of the range map's last page. The map begins directly after the metapage.
    put_u32(metapage, HEADER + 12, ranges.div_ceil(RANGES_IN_PAGE));
    put_u16(metapage, CHECKSUM, 0);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree_has_a_page_for_each_level() {
        let pages = tree(2);
        assert_eq!(pages.len(), 3 * PAGE);
        let (root, leaf) = (&pages[..PAGE], &pages[2 * PAGE..]);
        assert_eq!(u32_at(root, PAGE - 8), Some(2));
        assert_eq!(u32_at(leaf, PAGE - 8), Some(0));
        assert_eq!(root[PAGE - 4], 2);
        assert_eq!(leaf[PAGE - 4], 1);
        // The root's downlink points to page 2.
        assert_eq!(&root[PAGE - SPECIAL - TUPLE..PAGE - SPECIAL], [0, 0, 2, 0, 0, 0, 8, 0x20]);
        assert_eq!(tree(0)[PAGE - 4], 3);
    }

    #[test]
    fn foreign_pages_stay_as_they_are() {
        let mut page = vec![7; PAGE];
        assert!(!point_to_tree(&mut page, Some(3)) && !size_map(&mut page, 3));
        assert_eq!(page, vec![7; PAGE]);
    }
}
