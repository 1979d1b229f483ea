//! Reads the write-ahead log of a running server and tells which relation files its sessions have changed.
//!
//! [`WalReader`] tails `pg_wal`. It starts at a position, and reads on up to a position to which the server has written the log. It
//! keeps for each database the set of files whose contents have changed. A database without changes has no entry. It reads files only,
//! never writes, and knows nothing of SQL.
//!
//! # What it promises
//! - **Complete**: the reader reports every change that crash recovery would replay, of any session, committed or not.
//! - **Fail safe**: any irregularity (an unknown format, a gap, a wrong checksum, a record that does not follow the one before it) is
//!   a [`WalError`]. A valid record of an unknown kind counts as [`FileChanges::other`] of the files that it names. Without a file it
//!   counts as [`Changes::doubt`]. The reader skips nothing.
//! - **Precise**: records that only move bytes (pruning, freezing, visibility and free space maps, hint bits, row locks)
//!   and those of indexes, whose contents follow from their tables, are not changes.
//!
//! # What the log does not tell
//! - Rows of **temporary and unlogged** relations are not in the log, only their catalog entries and the creation of an
//!   unlogged relation's init fork are.
//! - **Sequences** log 32 values ahead: `nextval` shows when it is the first since a checkpoint, since `setval`, or since
//!   32 others.
//! - With `wal_level = minimal`, the log has no rows of a relation whose file is **new in the same transaction**. It has the new file
//!   ([`FileChanges::created`]), and callers must not trust the contents.
//! - Rows may **read differently by a catalog alone**: `ADD COLUMN … DEFAULT` and `ALTER TYPE … RENAME VALUE` write no row of a
//!   table. The reader reports only `pg_attribute` or `pg_enum`.
//! - A transaction that changed something before the reader's start and commits after it is unknown to the reader: its
//!   commit does not set [`Changes::committed`].
//!
//! # How far to read
//! Records are in the files once the server has flushed them. `SELECT pg_logical_emit_message(true, 'pgfresh', '')` with
//! `synchronous_commit = on` returns the end of the record that it writes. After its commit, everything up to there is in the files.
//! `pg_current_wal_insert_lsn()` read afterwards may be ahead of the files when other sessions write.
//!
//! # Formats
//! PostgreSQL 13 to 18, told apart by the magic number of the log's pages. Sources, by their names in PostgreSQL 18:
//! `access/xlog_internal.h` (pages), `access/xlogrecord.h` and `access/xlogreader.c` (records), `access/rmgrlist.h`
//! (resource managers), `access/heapam_xlog.h`, `access/xact.h`, `catalog/pg_control.h`, `catalog/storage_xlog.h`,
//! `commands/dbcommands_xlog.h`, `utils/relmapper.h`. All numbers are in the byte order of the machine.

mod changes;
mod classify;
mod error;
mod field;
mod file;
mod lsn;
mod page;
mod reader;
mod record;
#[cfg(test)]
mod tests;
mod transactions;

pub use changes::{Changes, FileChanges, SharedChange};
pub use error::WalError;
pub use file::RelationFile;
pub use lsn::{Lsn, LsnError};
pub use reader::WalReader;
