//! Reads a running server's write-ahead log, to find out which relation files its sessions have changed.
//!
//! With this knowledge, pgfresh can reset exactly what a test changed and prove that nothing else changed.
//!
//! [`WalReader`] follows the files in `pg_wal`, from a given position up to one that the server has flushed. For each
//! changed database, the reader collects the set of files whose contents changed. It never writes to files and doesn't
//! use SQL.
//!
//! # Guarantees
//! - **Complete**: the reader reports every change that crash recovery would replay, from any session, even uncommitted
//!   ones.
//! - **Fail safe**: any irregularity is a [`WalError`], for example an unknown format, a gap, a wrong checksum, or a
//!   record that does not follow the previous one. If a valid record is of an unknown kind, the files it references get
//!   [`FileChanges::other`]; without any files, the record puts databases in doubt ([`Changes::doubt`]). The reader
//!   never skips a record.
//! - **Precise**: records that don't change contents don't count. Some only move bytes (pruning, freezing, visibility and free
//!   space maps, hint bits, row locks). Others change indexes, whose contents follow from their tables.
//!
//! # What the log does not show
//! - Rows of **temporary and unlogged** relations are not in the log, which shows only changes to their catalog entries
//!   and the creation of unlogged relations' init forks.
//! - **Sequences** are logged 32 values ahead. The log shows a `nextval` only if it is the first one after a checkpoint, after
//!   `setval`, or after 32 others.
//! - With `wal_level = minimal`, if a relation's file is **new in the same transaction**, its rows are not in the log.
//!   The log shows just the new file ([`FileChanges::created`]), whose contents callers must not trust.
//! - Rows can **read differently because of a catalog**. For example, `ADD COLUMN … DEFAULT` and `ALTER TYPE … RENAME
//!   VALUE` write no table rows, so the reader reports only a change to `pg_attribute` or `pg_enum`.
//! - If a transaction changed something before the reader started and commits afterwards, the reader doesn't know about
//!   the transaction, so the commit does not set [`Changes::committed`].
//!
//! # How far to read
//! A record is in the files once the server has flushed it. To find out how far to read, a caller can run the following
//! query with `synchronous_commit = on`: `SELECT pg_logical_emit_message(true, 'pgfresh', '')`. This writes a record
//! and returns the position of its end. After the commit, everything up to that position is in the files. In contrast,
//! `pg_current_wal_insert_lsn()` may be ahead of the files if other sessions are writing.
//!
//! # Formats
//! The reader supports PostgreSQL 13 to 18, distinguishing them by the magic number in the log's pages. Sources, by
//! their names in PostgreSQL 18: `access/xlog_internal.h` (pages), `access/xlogrecord.h` and `access/xlogreader.c`
//! (records), `access/rmgrlist.h` (resource managers), `access/heapam_xlog.h`, `access/xact.h`, `catalog/pg_control.h`,
//! `catalog/storage_xlog.h`, `commands/dbcommands_xlog.h`, `utils/relmapper.h`. All numbers are in the machine's byte
//! order.

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
