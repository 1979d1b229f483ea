//! Parses log records. A record consists of a header, references to blocks, and the record's own data.
//!
//! Source: `access/xlogrecord.h`, and `DecodeXLogRecord` in `access/transam/xlogreader.c`.

use super::error::WalError;
use crate::lsn::Lsn;

/// A relation's file, identified by the numbers in its path. A relation gets a new file when the server rewrites or
/// truncates it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelationFile {
    /// Oid of the tablespace.
    pub tablespace: u32,
    /// Oid of the database. 0 for catalogs shared by all databases.
    pub database: u32,
    /// File number, as returned by `pg_relation_filenode`.
    pub number: u32,
}

/// Length of a record header, in bytes.
pub(super) const HEADER: usize = 24;

/// Flag for a record that changes files without referencing their blocks (`XLR_SPECIAL_REL_UPDATE`).
pub(super) const SPECIAL: u8 = 0x01;
/// Bits of `xl_info` that don't belong to the resource manager. Two of them are in use.
const GENERAL: u8 = 0x0F;
const KNOWN_GENERAL: u8 = SPECIAL | 0x02;

/// Identifiers of headers that don't belong to a block. Source: `XLR_BLOCK_ID_*`.
const DATA_SHORT: u8 = 255;
const DATA_LONG: u8 = 254;
const ORIGIN: u8 = 253;
const TOP_LEVEL_XID: u8 = 252;
/// Maximum identifier of a block (`XLR_MAX_BLOCK_ID`).
const LAST_BLOCK: u8 = 32;

/// Flags of a block header. Source: `BKPBLOCK_*`.
const FORK: u8 = 0x0F;
const HAS_IMAGE: u8 = 0x10;
const HAS_DATA: u8 = 0x20;
const SAME_RELATION: u8 = 0x80;

/// Flag for a page image that omits the unused middle of the page (`BKPIMAGE_HAS_HOLE`).
const HAS_HOLE: u8 = 0x01;

/// A block referenced by a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    /// File that the block belongs to.
    pub(super) file: RelationFile,
    /// Fork number: 0 main, 1 free space map, 2 visibility map, 3 init. Source: `common/relpath.h`.
    pub(super) fork: u8,
}

/// A record with a verified checksum.
#[derive(Debug)]
pub(super) struct Record<'a> {
    /// Start of the record.
    pub(super) at: u64,
    /// Id of the transaction or subtransaction. 0 outside transactions.
    pub(super) transaction: u32,
    /// Start of the previous record.
    pub(super) previous: u64,
    /// Two general bits, along with the record's kind as defined by its resource manager.
    pub(super) info: u8,
    /// Number of the resource manager. Source: `access/rmgrlist.h`.
    pub(super) manager: u8,
    /// The record's own data, which doesn't belong to any of its blocks.
    pub(super) data: &'a [u8],
}

impl<'a> Record<'a> {
    /// Verifies and parses the record in `bytes`, which starts at `at` in the log. Stores the referenced blocks in
    /// `blocks`.
    pub(super) fn parse(
        bytes: &'a [u8],
        at: u64,
        major: u32,
        blocks: &mut Vec<Block>,
    ) -> Result<Self, WalError> {
        let short = || WalError::malformed(at, "the record is shorter than its header");
        let (header, body) = bytes.split_at_checked(HEADER).ok_or_else(short)?;
        let checksum = crc32c::crc32c_append(crc32c::crc32c(body), &header[..20]);
        if field(header, 20).map(u32::from_ne_bytes) != Some(checksum) {
            return Err(WalError::Checksum { at: Lsn(at) });
        }
        let (info, manager) = (header[16], header[17]);
        if info & GENERAL & !KNOWN_GENERAL != 0 {
            return Err(WalError::malformed(at, "the record has unknown flags"));
        }
        blocks.clear();
        let data = Headers { rest: body, payload: 0, major, last: None, relation: None }
            .read(blocks)
            .map_err(|what| WalError::malformed(at, what))?;
        Ok(Self {
            at,
            transaction: field(header, 4).map(u32::from_ne_bytes).ok_or_else(short)?,
            previous: field(header, 8).map(u64::from_ne_bytes).ok_or_else(short)?,
            info,
            manager,
            data,
        })
    }
}

/// Reads the headers that follow a record's own header. All images and data come after the headers, in header order.
struct Headers<'a> {
    /// Bytes that haven't been read yet.
    rest: &'a [u8],
    /// Number of bytes in `rest` that are images and data for the headers read so far.
    payload: usize,
    major: u32,
    /// Identifier of the last block.
    last: Option<u8>,
    /// File of the last block.
    relation: Option<RelationFile>,
}

const CUT: &str = "the record ends in its headers";

impl<'a> Headers<'a> {
    /// Reads all headers. Returns the record's own data, which comes last.
    fn read(mut self, blocks: &mut Vec<Block>) -> Result<&'a [u8], &'static str> {
        let mut own = 0;
        while self.rest.len() > self.payload {
            let [identifier] = self.take()?;
            match identifier {
                DATA_SHORT | DATA_LONG => {
                    own = if identifier == DATA_SHORT {
                        let [length] = self.take()?;
                        usize::from(length)
                    } else {
                        usize::try_from(u32::from_ne_bytes(self.take()?)).map_err(|_| CUT)?
                    };
                    self.payload = self.payload.checked_add(own).ok_or(CUT)?;
                    break;
                }
                ORIGIN => {
                    let _origin: [u8; 2] = self.take()?;
                }
                TOP_LEVEL_XID => {
                    let _transaction: [u8; 4] = self.take()?;
                }
                0..=LAST_BLOCK => {
                    if self.last.is_some_and(|last| identifier <= last) {
                        return Err("the record's blocks are not in order");
                    }
                    self.last = Some(identifier);
                    blocks.push(self.block()?);
                }
                _ => return Err("the record has a header of an unknown kind"),
            }
        }
        if self.rest.len() != self.payload {
            return Err("the record's length is not that of its parts");
        }
        Ok(&self.rest[self.rest.len() - own..])
    }

    fn block(&mut self) -> Result<Block, &'static str> {
        let [flags] = self.take()?;
        let length = u16::from_ne_bytes(self.take()?);
        if (flags & HAS_DATA != 0) != (length > 0) {
            return Err(
                "a block of the record has data where there should be none, or none where there should be",
            );
        }
        self.payload += usize::from(length);
        if flags & HAS_IMAGE != 0 {
            self.image()?;
        }
        if flags & SAME_RELATION == 0 {
            self.relation = Some(RelationFile {
                tablespace: u32::from_ne_bytes(self.take()?),
                database: u32::from_ne_bytes(self.take()?),
                number: u32::from_ne_bytes(self.take()?),
            });
        }
        let _number: [u8; 4] = self.take()?;
        let file = self.relation.ok_or("the record's first block has no file")?;
        Ok(Block { file, fork: flags & FORK })
    }

    /// Reads the header of a page image, whose flags changed in version 15.
    fn image(&mut self) -> Result<(), &'static str> {
        let length = u16::from_ne_bytes(self.take()?);
        let _hole_offset: [u8; 2] = self.take()?;
        let [info] = self.take()?;
        // IS_COMPRESSED was one bit. Since 15, pglz, LZ4 and Zstandard have one bit each. The remaining bit is APPLY.
        let (compressed, known) =
            if server::Major(self.major).has_wal_compression_methods() { (0x1C, 0x1F) } else { (0x02, 0x07) };
        if info & !known != 0 {
            return Err("the record has a page image of an unknown kind");
        }
        if info & compressed != 0 && info & HAS_HOLE != 0 {
            let _hole_length: [u8; 2] = self.take()?;
        }
        self.payload += usize::from(length);
        Ok(())
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(CUT)?;
        self.rest = rest;
        Ok(*taken)
    }
}

/// Returns the `N` bytes at offset `at`, or `None` if `bytes` is too short.
pub(super) fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}
