//! Reads the write-ahead log of a running server to determine which relation files its sessions changed.
//!
//! With this knowledge, pgfresh can reset exactly what a test changed, and can prove that nothing else changed.
//!
//! [`WalReader`] follows the files in `pg_wal`. It starts at a given position and reads up to a position given
//! by the caller. The server must have flushed the log up to this position. For each database with changes, the
//! reader keeps the set of files whose contents changed. The reader never writes to files and doesn't use SQL.
//!
//! # Guarantees
//! - **Complete**: the reader reports every change that crash recovery would replay, from any session, even if it
//!   wasn't committed.
//! - **Fail safe**: any irregularity is a [`WalError`], for example an unknown format, a gap, a wrong
//!   checksum, or a record that doesn't follow the previous one. If a valid record is of an unknown kind,
//!   the reader sets [`FileChanges::other`] for the files that the record names. If the record doesn't name
//!   any file, the reader puts databases in doubt ([`Changes::doubt`]). The reader never skips a record.
//! - **Precise**: records that don't change contents don't count. Some only move bytes (pruning, freezing, visibility
//!   and free space maps, hint bits, row locks). Others change indexes, whose contents follow from their tables.
//!
//! # What the log does not show
//! - Rows of **temporary and unlogged** relations aren't in the log. The log shows only
//!   changes to their catalog entries and the creation of an unlogged relation's init fork.
//! - **Sequences** are logged 32 values ahead. The log shows a `nextval` only if it is the first one after a
//!   checkpoint, after `setval`, or after 32 others.
//! - With `wal_level = minimal`, if a relation's file is **new in the same transaction**, its rows aren't in the log.
//!   The log shows the new file ([`FileChanges::created`]), and callers must not trust its contents.
//! - Rows can **read differently because of a catalog**. For example, `ADD COLUMN … DEFAULT` and
//!   `ALTER TYPE … RENAME VALUE` don't write any table rows. The reader then reports only a change to `pg_attribute`
//!   or `pg_enum`.
//! - If a transaction changed something before the reader started and commits afterwards,
//!   the reader hasn't seen its changes, so the commit doesn't set [`Changes::committed`].
//!
//! # How far to read
//! A record is in the files once the server has flushed it. To determine a position up to which the reader can read,
//! a caller runs the following query with `synchronous_commit = on`:
//! `SELECT pg_logical_emit_message(true, 'pgfresh', '')`. This writes a record and returns its end. After the commit,
//! everything up to that position is in the files. In contrast, `pg_current_wal_insert_lsn()` may be ahead of the files
//! if other sessions are writing.
//!
//! # Formats
//! The reader supports PostgreSQL 13 to 19, and distinguishes them by the magic number of the log's pages. Sources, by
//! their names in PostgreSQL 19: `access/xlog_internal.h` (pages), `access/xlogrecord.h` and `access/xlogreader.c`
//! (records), `access/rmgrlist.h` (resource managers), `access/heapam_xlog.h`, `access/xact.h`,
//! `catalog/pg_control.h`, `catalog/storage_xlog.h`, `commands/dbcommands_xlog.h`, `utils/relmapper.h`. All numbers
//! are in the byte order of the machine.

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
