//! Determines which file contents each log record changes.
//!
//! This module lists the record kinds that don't change contents. Every other kind counts as a change, so an unknown
//! kind can't hide one. Unless noted otherwise, the numbers are valid for PostgreSQL 13 to 19.

use super::changes::{FileChanges, SharedChange, UntakenChanges};
use super::error::WalError;
use super::record::RelationFile;
use super::record::{Block, Record, SPECIAL, field};

/// Resource managers. Source: `access/rmgrlist.h`.
const XLOG: u8 = 0;
const XACT: u8 = 1;
const SMGR: u8 = 2;
const CLOG: u8 = 3;
const DBASE: u8 = 4;
const TBLSPC: u8 = 5;
const MULTIXACT: u8 = 6;
const RELMAP: u8 = 7;
const STANDBY: u8 = 8;
const HEAP2: u8 = 9;
const HEAP: u8 = 10;
const BTREE: u8 = 11;
const HASH: u8 = 12;
const GIN: u8 = 13;
const GIST: u8 = 14;
const SEQ: u8 = 15;
const SPGIST: u8 = 16;
const BRIN: u8 = 17;
const COMMIT_TS: u8 = 18;
const REPLORIGIN: u8 = 19;
const LOGICALMSG: u8 = 21;

/// Bits of `xl_info` that contain the kind. In heap and transaction records, the highest one is a flag.
const KIND: u8 = 0xF0;
const KIND_WITH_FLAG: u8 = 0x70;
/// Flag in transaction records (`XLOG_XACT_HAS_INFO`).
const HAS_INFO: u8 = 0x80;

/// Kind `XLOG_SWITCH`, after which the rest of the segment is empty.
const SWITCH: u8 = 0x40;

/// The catalog `pg_replication_origin`. The progress of replication
/// origins isn't in any catalog, so it counts as a change to this one.
const REPLICATION_ORIGIN: RelationFile = RelationFile { tablespace: 1664, database: 0, number: 6000 };

const UNKNOWN: &str = "the write-ahead log has a record of an unknown kind";
const CUT: &str = "the record is shorter than its kind has it";

/// Returns true if the rest of the segment after this record is empty, so that the log continues in the next segment.
pub(super) fn is_switch(record: &Record<'_>) -> bool {
    record.manager == XLOG && record.info & KIND == SWITCH
}

/// Adds the changes made by `record` to `untaken`. `blocks` are the blocks referenced by the record.
pub(super) fn classify(
    record: &Record<'_>,
    blocks: &[Block],
    major: u32,
    untaken: &mut UntakenChanges,
) -> Result<(), WalError> {
    let kind = record.info & KIND;
    let known = match record.manager {
        HEAP => heap(record, blocks, untaken).map_err(|what| WalError::malformed(record.at, what))?,
        HEAP2 => heap2(record, blocks, untaken).map_err(|what| WalError::malformed(record.at, what))?,
        // An index's contents follow from its table, whose own change is also in the log.
        BTREE | HASH | GIN | GIST | SPGIST | BRIN => true,
        XACT => {
            transaction(record, major, untaken).ok_or_else(|| WalError::malformed(record.at, CUT))?;
            matches!(record.info & KIND_WITH_FLAG, 0x00..=0x60)
        }
        XLOG => xlog(record, blocks, major, untaken),
        SMGR => storage(record, untaken).ok_or_else(|| WalError::malformed(record.at, CUT))?,
        DBASE => database(record, major, untaken).ok_or_else(|| WalError::malformed(record.at, CUT))?,
        RELMAP if kind == 0x00 => {
            let database = number(record.data, 0).ok_or_else(|| WalError::malformed(record.at, CUT))?;
            untaken.doubt(database, "a system catalog was rewritten");
            true
        }
        SEQ if kind == 0x00 && !blocks.is_empty() => {
            for block in blocks {
                untaken.sequence(block.file);
            }
            true
        }
        REPLORIGIN if matches!(kind, 0x00 | 0x10) => {
            untaken.share(SharedChange { file: REPLICATION_ORIGIN, from: None, in_place: false });
            true
        }
        // No query reads transaction states, multixacts, locks or messages. For tablespaces, the change to
        // `pg_tablespace` is also in the log.
        CLOG | TBLSPC => blocks.is_empty() && matches!(kind, 0x00 | 0x10),
        MULTIXACT => blocks.is_empty() && matches!(kind, 0x00..=0x30),
        STANDBY | COMMIT_TS => blocks.is_empty() && matches!(kind, 0x00..=0x20),
        LOGICALMSG => blocks.is_empty() && kind == 0x00,
        _ => false,
    };
    // This record changes files other than its blocks', although its kind normally doesn't, without showing which ones.
    let may_be_special = matches!(record.manager, XACT | SMGR | DBASE) && known;
    if record.info & SPECIAL != 0 && !may_be_special {
        untaken.doubt(0, UNKNOWN);
    }
    if !known {
        unknown(record, blocks, untaken);
    }
    Ok(())
}

/// Counts all blocks in a record of unknown kind as changed.
fn unknown(record: &Record<'_>, blocks: &[Block], untaken: &mut UntakenChanges) {
    for block in blocks {
        change_rows(record, block, untaken, |file| file.other = true);
    }
    if blocks.is_empty() {
        untaken.doubt(0, UNKNOWN);
    }
}

/// Records changes to table rows. The first block contains the row's new version.
fn heap(record: &Record<'_>, blocks: &[Block], untaken: &mut UntakenChanges) -> Result<bool, &'static str> {
    let kind = record.info & KIND_WITH_FLAG;
    // TRUNCATE (0x30) is for logical decoding and references no files, but the new file is also in the log. CONFIRM
    // (0x50) confirms a logged insertion, and LOCK (0x60) changes no contents.
    if matches!(kind, 0x30 | 0x50 | 0x60) {
        return Ok(true);
    }
    let block = blocks.first().ok_or("the heap record names no block")?;
    match kind {
        0x00 => change_rows(record, block, untaken, |file| file.inserted += 1),
        0x10 => change_rows(record, block, untaken, |file| file.deleted += 1),
        0x20 | 0x40 => change_rows(record, block, untaken, |file| file.updated += 1),
        _ => untaken.in_place(block.file),
    }
    Ok(true)
}

/// Records other changes to table rows.
fn heap2(record: &Record<'_>, blocks: &[Block], untaken: &mut UntakenChanges) -> Result<bool, &'static str> {
    // Only MULTI_INSERT (0x50) changes contents. REWRITE and NEW_CID are for logical decoding. Kinds 0x10 to 0x40
    // remove dead rows, freeze rows, and set visibility: CLEAN, FREEZE_PAGE, CLEANUP_INFO and VISIBLE in 13; PRUNE,
    // VACUUM, FREEZE_PAGE and VISIBLE since 14. PostgreSQL 17 replaced all except VISIBLE with three kinds of PRUNE,
    // and 19 removed VISIBLE. Kind 0x60 is LOCK_UPDATED.
    if record.info & KIND_WITH_FLAG != 0x50 {
        return Ok(true);
    }
    let block = blocks.first().ok_or("the heap record names no block")?;
    let rows = field(record.data, 2).map(u16::from_ne_bytes).ok_or(CUT)?;
    change_rows(record, block, untaken, |file| file.inserted += u64::from(rows));
    Ok(true)
}

/// Records a change to rows in a block.
fn change_rows(
    record: &Record<'_>,
    block: &Block,
    untaken: &mut UntakenChanges,
    count: impl FnOnce(&mut FileChanges),
) {
    untaken.change(record.transaction, block.file, |file| {
        count(file);
        file.filled = true;
    });
}

/// Records the changes made by page images. This manager's other records change nothing.
fn xlog(record: &Record<'_>, blocks: &[Block], major: u32, untaken: &mut UntakenChanges) -> bool {
    match record.info & KIND {
        // FPI_FOR_HINT: an image of a page where only hint bits changed.
        0xA0 => true,
        // FPI: a page image with arbitrary content. Free space and visibility maps (forks 1 and 2) contain no rows.
        0xB0 => {
            for block in blocks.iter().filter(|block| !matches!(block.fork, 1 | 2)) {
                change_rows(record, block, untaken, |file| file.other = true);
            }
            true
        }
        // Checkpoints, NOOP, NEXTOID, SWITCH, backups, parameters, end of recovery, OVERWRITE_CONTRECORD (0xD0), and
        // since 17 CHECKPOINT_REDO (0xE0).
        0x00..=0x90 | 0xD0 | 0xE0 => blocks.is_empty(),
        // Since 19: ASSIGN_LSN, LOGICAL_DECODING_STATUS_CHANGE.
        0xC0 | 0xF0 => server::Major(major).has_wal_assigned_positions() && blocks.is_empty(),
        _ => false,
    }
}

/// Records that files are new or truncated. Such records reference no blocks.
fn storage(record: &Record<'_>, untaken: &mut UntakenChanges) -> Option<bool> {
    let file_at = |at| {
        Some(RelationFile {
            tablespace: number(record.data, at)?,
            database: number(record.data, at + 4)?,
            number: number(record.data, at + 8)?,
        })
    };
    match record.info & KIND {
        0x10 => {
            let file = file_at(0)?;
            untaken.create(record.transaction, file);
        }
        0x20 => {
            let file = file_at(4)?;
            let pages = number(record.data, 0)?;
            // This bit is SMGR_TRUNCATE_HEAP. The others are for the visibility and free space maps.
            if number(record.data, 16)? & 1 != 0 {
                untaken.change(record.transaction, file, |file| {
                    file.truncated = true;
                    file.filled = pages > 0;
                });
            }
        }
        _ => return Some(false),
    }
    Some(true)
}

/// Records that a database was created, moved or dropped. Up to version 14, there is one kind of record for creating
/// databases. Since 15, there are two such kinds, and DROP has a different number.
fn database(record: &Record<'_>, major: u32, untaken: &mut UntakenChanges) -> Option<bool> {
    let target = number(record.data, 0)?;
    match (record.info & KIND, server::Major(major).has_wal_database_copies()) {
        (0x00, _) => {
            let source = number(record.data, 8)?;
            if source == target {
                untaken.move_database(target);
            } else {
                untaken.create_database(record.transaction, target, Some(source));
            }
        }
        (0x10, true) => untaken.create_database(record.transaction, target, None),
        (0x10, false) | (0x20, true) => untaken.drop_database(target),
        _ => return Some(false),
    }
    Some(true)
}

/// Records commits and rollbacks, including those of prepared transactions. PREPARE itself, ASSIGNMENT and
/// INVALIDATIONS don't end a transaction.
fn transaction(record: &Record<'_>, major: u32, untaken: &mut UntakenChanges) -> Option<()> {
    let kind = record.info & KIND_WITH_FLAG;
    let commits = matches!(kind, 0x00 | 0x30);
    if !commits && !matches!(kind, 0x20 | 0x40) {
        return Some(());
    }
    let end = if record.info & HAS_INFO == 0 {
        (record.data.len() == 8).then(End::default)?
    } else {
        End::read(record.data.get(8..)?, commits, major)?
    };
    let top = end.prepared.unwrap_or(record.transaction);
    let subtransactions = end.subtransactions.chunks_exact(4).filter_map(|number| self::number(number, 0));
    let all = std::iter::once(top).chain(subtransactions);
    if commits {
        untaken.commit(all, end.database);
    } else {
        untaken.abort(all);
    }
    if end.has_origin {
        untaken.share(SharedChange { file: REPLICATION_ORIGIN, from: end.database, in_place: false });
    }
    Some(())
}

/// The contents of a record that ends a transaction. Source: `ParseCommitRecord` and `ParseAbortRecord` in
/// `access/rmgrdesc/xactdesc.c`.
#[derive(Debug, Default)]
struct End<'a> {
    database: Option<u32>,
    /// An array of four-byte integers.
    subtransactions: &'a [u8],
    prepared: Option<u32>,
    has_origin: bool,
}

impl<'a> End<'a> {
    /// Parses all parts of a record. Returns `None` if the record is too short or too long.
    fn read(data: &'a [u8], commits: bool, major: u32) -> Option<Self> {
        let mut rest = data;
        let flags = take_number(&mut rest)?;
        let statistics = server::Major(major).wal_statistics_entry();
        let known = 0xE000_00FF | if statistics.is_some() { 0x100 } else { 0 };
        if flags & !known != 0 {
            return None;
        }
        let mut end = Self::default();
        if flags & 0x01 != 0 {
            end.database = Some(take_number(&mut rest)?).filter(|database| *database != 0);
            take(&mut rest, 4)?;
        }
        if flags & 0x02 != 0 {
            end.subtransactions = take_array(&mut rest, 4)?;
        }
        // Files to remove. Skip these, because the changes to their pg_class rows are also in the log.
        if flags & 0x04 != 0 {
            take_array(&mut rest, 12)?;
        }
        // Statistics to remove.
        if flags & 0x100 != 0 {
            take_array(&mut rest, statistics?)?;
        }
        // Cache invalidations.
        if flags & 0x08 != 0 {
            commits.then_some(())?;
            take_array(&mut rest, 16)?;
        }
        if flags & 0x10 != 0 {
            end.prepared = Some(take_number(&mut rest)?);
            if flags & 0x80 != 0 {
                let name = rest.iter().position(|byte| *byte == 0)?;
                take(&mut rest, name + 1)?;
            }
        }
        if flags & 0x20 != 0 {
            end.has_origin = true;
            take(&mut rest, 16)?;
        }
        rest.is_empty().then_some(end)
    }
}

/// Returns the four-byte integer at offset `at`.
fn number(data: &[u8], at: usize) -> Option<u32> {
    field(data, at).map(u32::from_ne_bytes)
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(taken)
}

fn take_number(rest: &mut &[u8]) -> Option<u32> {
    number(take(rest, 4)?, 0)
}

/// Takes an array: a count followed by that many items of `size` bytes each.
fn take_array<'a>(rest: &mut &'a [u8], size: usize) -> Option<&'a [u8]> {
    let count = usize::try_from(take_number(rest)?).ok()?;
    take(rest, count.checked_mul(size)?)
}
