//! Reads the write-ahead log of a running server, to find out which relation files its sessions have changed.
//!
//! Because of this, pgfresh can reset only what a test has changed, and can prove that nothing else has changed.
//!
//! [`WalReader`] follows the files in `pg_wal`. It starts at a position, and reads up to a position up to which the server has
//! flushed the log. For each database, it keeps the set of files whose contents have changed. A database without changes has no
//! entry. The reader only reads files, never writes, and does not use SQL.
//!
//! # Guarantees
//! - **Complete**: the reader reports every change that crash recovery would replay, from any session, whether committed or not.
//! - **Fail safe**: any irregularity is a [`WalError`]. Examples are an unknown format, a gap, a wrong checksum, or a record that
//!   does not follow the previous one. A valid record of an unknown kind counts as [`FileChanges::other`] for the files that it
//!   names. If it names no file, it counts as [`Changes::doubt`]. The reader never skips a record.
//! - **Precise**: some records do not change contents, so they do not count. These are records that only move bytes (pruning,
//!   freezing, visibility and free space maps, hint bits, row locks), and records of indexes, whose contents follow from their
//!   tables.
//!
//! # What the log does not show
//! - Rows of **temporary and unlogged** relations are not in the log. It has only their catalog entries, and the creation of an
//!   unlogged relation's init fork.
//! - **Sequences** are logged 32 values ahead. A `nextval` is in the log only if it is the first one since a checkpoint, since
//!   `setval`, or since 32 others.
//! - With `wal_level = minimal`, the log has no rows of a relation whose file is **new in the same transaction**. It has the new
//!   file ([`FileChanges::created`]), and callers must not trust its contents.
//! - Rows can **read differently because of a catalog**. For example, `ADD COLUMN … DEFAULT` and `ALTER TYPE … RENAME VALUE` write
//!   no row of a table. The reader reports only `pg_attribute` or `pg_enum`.
//! - If a transaction changed something before the reader's start and commits afterwards, the reader doesn't know it. Its commit
//!   does not set [`Changes::committed`].
//!
//! # How far to read
//! A record is in the files once the server has flushed it. With `synchronous_commit = on`, a caller can run
//! `SELECT pg_logical_emit_message(true, 'pgfresh', '')`, which returns the end of the record that it writes. After its commit,
//! everything up to that position is in the files. In contrast, `pg_current_wal_insert_lsn()` may be ahead of the files if other
//! sessions write.
//!
//! # Formats
//! The reader supports PostgreSQL 13 to 18, and distinguishes them by the magic number of the log's pages. Sources, by their names
//! in PostgreSQL 18: `access/xlog_internal.h` (pages), `access/xlogrecord.h` and `access/xlogreader.c` (records),
//! `access/rmgrlist.h` (resource managers), `access/heapam_xlog.h`, `access/xact.h`, `catalog/pg_control.h`,
//! `catalog/storage_xlog.h`, `commands/dbcommands_xlog.h`, `utils/relmapper.h`. All numbers are in the byte order of the machine.

pub(crate) mod changes;
mod classify;
pub(crate) mod error;
pub(crate) mod evidence;
mod page;
pub(crate) mod reader;
pub(crate) mod record;
#[cfg(test)]
mod tests;
mod transactions;
