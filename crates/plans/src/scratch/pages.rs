//! Pages that the planner reads: the metapage of a B-tree, with a tree below it that has a height but no rows, and the
//! metapage of a BRIN index.
//!
//! The planner takes a B-tree's height from its metapage, and asks the tree for the lowest and highest value of a column.
//! The tree must therefore be sound: each level is one page with one link to the level below, and the leaf is empty. The
//! planner then finds no value, and uses the histogram.
//!
//! Source: `bufpage.h`, `itup.h`, `nbtree.h` and `brin_page.h` of PostgreSQL 13 to 18. Numbers have the machine's byte
//! order.

use crate::statistics::PAGE_SIZE;

/// Size of a page in bytes. [`super::Scratch::start`] refuses servers with another one.
pub(super) const PAGE: usize = PAGE_SIZE as usize;
/// Maximum height of a B-tree that pgfresh writes. No index of 2^32 pages comes near it.
pub(super) const HIGHEST: u32 = 20;

/// Size of the header of a page.
const HEADER: usize = 24;
/// Size of a B-tree page's data at the end of the page.
const SPECIAL: usize = 16;
/// Size of a line pointer, and of a tuple without values.
const POINTER: usize = 4;
const TUPLE: usize = 8;
/// Offsets in a page: checksum, end of the line pointers, start of the tuples, start of the special data, size and
/// version.
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
/// Flag of a tuple whose item pointer has another meaning, here a link to a page with a number of key columns of 0.
const LINK: u16 = 0x2000;
/// State of a line pointer with a tuple.
const NORMAL: u32 = 1;
/// First number in the metapage of a B-tree, and of a BRIN index.
const BTREE_MAGIC: u32 = 0x0005_3162;
const BRIN_MAGIC: u32 = 0xA810_9CFA;
/// Number of ranges for which a page of a BRIN index's map has room.
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

/// Changes a B-tree's metapage so that it names the first page of [`tree`] as the root, or no root if there is no height.
/// Returns false if the page is no such metapage.
pub(super) fn point_to_tree(metapage: &mut [u8], height: Option<u32>) -> bool {
    if metapage.len() != PAGE || u32_at(metapage, HEADER) != Some(BTREE_MAGIC) {
        return false;
    }
    // Root, its level, and again for the shortcut past levels with one page.
    let (root, height) = (u32::from(height.is_some()), height.unwrap_or(0));
    for (index, value) in [root, height, root, height].into_iter().enumerate() {
        put_u32(metapage, HEADER + 8 + 4 * index, value);
    }
    put_u16(metapage, CHECKSUM, 0);
    true
}

/// Returns the pages of a tree of this height, from the root in page 1 to the empty leaf. A height of 0 is one page.
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
        // The link: the upper half of the page's number, its lower half, the number of key columns, size and flags.
        let below = height - level + 2;
        #[allow(clippy::cast_possible_truncation)]
        for (index, value) in [0, below as u16, 0, TUPLE as u16 | LINK].into_iter().enumerate() {
            put_u16(&mut page, upper + 2 * index, value);
        }
    }
    // The pages to the left and right are 0, that is, there are none.
    put_u32(&mut page, special + 8, level);
    let flags = if level == 0 { LEAF } else { 0 } | if level == height { ROOT } else { 0 };
    put_u16(&mut page, special + 12, flags);
    page
}

/// Changes the metapage of a BRIN index so that its map has the size for a table of `pages` pages. Returns false if the
/// page is no such metapage.
pub(super) fn size_map(metapage: &mut [u8], pages: u32) -> bool {
    let in_range = u32_at(metapage, HEADER + 8).filter(|pages| *pages > 0);
    let (Some(BRIN_MAGIC), Some(in_range)) = (u32_at(metapage, HEADER), in_range) else { return false };
    let ranges = pages.div_ceil(in_range).max(1);
    // Number of the map's last page. The map begins after the metapage.
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
        // The root's link names page 2.
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
