//! Copies a template by copying its cached files, which is faster than CREATE DATABASE.
//!
//! The result is what CREATE DATABASE would produce, but without any changes that SQL has made to
//! the template in the server. Copying files doesn't need checkpoints or locks, shares blocks with
//! the cache if the file system supports that, and can pause while clients need the processors.
//!
//! A database consists of its directory and a row in `pg_database`. So pgfresh copies the directory and inserts the
//! row that CREATE DATABASE would have inserted when pgfresh put the template into service. The write-ahead log
//! doesn't mention the copied files, so pgfresh doesn't copy files if another server or a backup may replay the log.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use server::literal;
use storage::{Account, DirectoryCopier, Entry};

use crate::admin::{AdminPool, MARK, mark_of, number, text};
use crate::error::LeaseError;
use crate::runtime::drop::drop_database;
use crate::wal::evidence::Evidence;

/// Oid of the superuser that initdb created. Source: `src/include/catalog/pg_authid.dat`.
pub(crate) const BOOTSTRAP: u32 = 10;
/// Directory that contains one directory per database.
const BASE: &str = "base";
/// Directory that contains links to other tablespaces.
const TABLESPACES: &str = "pg_tblspc";

/// A template database's files in the cache.
#[derive(Debug)]
pub(crate) struct CachedFiles {
    entry: Entry,
    account: Account,
    data: PathBuf,
    oid: u32,
    noted: NotedRow,
}

/// A template's rows in shared catalogs, read when pgfresh put the template into service.
#[derive(Debug)]
pub(crate) struct NotedRow {
    /// The row of `pg_database`, as JSON.
    row: String,
    /// `datfrozenxid` and `datminmxid`: the oldest transactions in the template's files. The copy is usable only while
    /// the server still knows which of these transactions committed.
    oldest: [String; 2],
    /// The rows of `pg_shdepend` for objects in the template that depend on roles, as JSON.
    dependencies: String,
}

impl NotedRow {
    /// Selects the values for [`Self::read`], given the row `d` of `pg_database`.
    pub(crate) const COLUMNS: &str = "to_jsonb(d), datfrozenxid, datminmxid, \
        (SELECT coalesce(jsonb_agg(to_jsonb(s)), '[]') FROM pg_shdepend s WHERE dbid = d.oid)";

    /// Reads the values of [`Self::COLUMNS`], in their order.
    pub(crate) fn read(mut next: impl FnMut() -> String) -> Self {
        Self { row: next(), oldest: [next(), next()], dependencies: next() }
    }
}

/// An SQL condition that is true if anything except this server's own crash recovery may replay the log, for example a
/// standby or a restored backup.
const REPLAYED: &str = "(EXISTS (SELECT FROM pg_stat_get_wal_senders()) \
     OR EXISTS (SELECT FROM pg_get_replication_slots() WHERE slot_type = 'physical') \
     OR current_setting('archive_mode') <> 'off')";

/// The result of copying a template's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CachedCopy {
    Made,
    /// The files are unusable. CREATE DATABASE may still work.
    Impossible,
    /// `go_on` stopped the copy.
    Stopped,
}

impl CachedFiles {
    /// Returns the files of the database with this `oid`. The server's `data` directory must be a copy of the cache
    /// `entry`. Returns `None` if some files are outside the database's directory, or if some relations are unlogged,
    /// because a crash during a copy might empty those relations.
    pub(crate) fn of(entry: &Entry, data: &Path, oid: u32, noted: NotedRow) -> Option<Self> {
        let directory = format!("{BASE}/{oid}");
        let is_unlogged = entry.names_in(&directory).any(|name| name.ends_with("_init"));
        let is_elsewhere = entry.has_directories_in(TABLESPACES) || entry.has_directories_in(&directory);
        if is_unlogged || is_elsewhere || entry.names_in(&directory).next().is_none() {
            return None;
        }
        let account = Account::for_server().ok()?;
        Some(Self { entry: entry.clone(), account, data: data.to_owned(), oid, noted })
    }

    /// Copies the database `template` to a new database called `name`. Calls `go_on`, which may block, and stops once
    /// `go_on` returns `false`.
    ///
    /// # Errors
    /// Returns an error if the server doesn't respond. The copy exists only after [`CachedCopy::Made`].
    pub(crate) fn copy(
        &self,
        template: &str,
        name: &str,
        admin: &AdminPool,
        evidence: &Evidence,
        go_on: &dyn Fn() -> bool,
    ) -> Result<CachedCopy, LeaseError> {
        if evidence.is_log_replayed() {
            return Ok(CachedCopy::Impossible);
        }
        if !go_on() {
            return Ok(CachedCopy::Stopped);
        }
        let next =
            format!("SELECT pg_nextoid('pg_database', 'oid', 'pg_database_oid_index'), {REPLAYED}; {MARK}");
        let rows = admin.run("copy a template", &next)?;
        let oid = number(&text(&rows));
        evidence.read(mark_of(&rows));
        if rows.first().is_some_and(|row| row.get(1).is_some_and(|replayed| replayed.as_deref() == Some("t")))
        {
            evidence.log_is_replayed();
            return Ok(CachedCopy::Impossible);
        }
        // Earlier log records may have put all databases in doubt. That doesn't apply to this new oid, so discard the
        // doubt.
        drop(evidence.take(oid));
        let copier =
            DirectoryCopier { entry: &self.entry, parent: BASE, data: &self.data, account: &self.account };
        let [from, to] = [self.oid, oid].map(|oid| oid.to_string());
        match copier.copy(&from, &to, go_on) {
            Ok(true) => {}
            Ok(false) => return Ok(CachedCopy::Stopped),
            Err(error) => {
                tracing::warn!(%error, "could not copy a template by its files");
                return Ok(CachedCopy::Impossible);
            }
        }
        let entered = self.enter(oid, template, name, admin);
        if !matches!(entered, Ok(true))
            && let Err(error) = copier.remove(&to)
        {
            tracing::warn!(%error, "could not remove a copy that the server does not know");
        }
        Ok(if entered? { CachedCopy::Made } else { CachedCopy::Impossible })
    }

    /// Inserts the rows that make the copy known to the server. Returns `false` if the server refuses, if the log may
    /// be replayed elsewhere, or if a different database now has the template's name. Also returns `false` if a role
    /// that owns something in the files no longer exists, or if the server may have forgotten whether transactions in
    /// the files committed.
    fn enter(&self, oid: u32, template: &str, name: &str, admin: &AdminPool) -> Result<bool, LeaseError> {
        let NotedRow { row, dependencies, .. } = &self.noted;
        let [template, called, row, dependencies] = [template, name, row, dependencies].map(literal);
        let (source, is_remembered) = (self.oid, self.is_remembered(0));
        let sql = format!(
            "WITH noted AS ( \
               SELECT * FROM jsonb_populate_recordset(NULL::pg_shdepend, {dependencies}) \
             ), entered AS ( \
               INSERT INTO pg_database SELECT copy.* FROM jsonb_populate_record(NULL::pg_database, {row}::jsonb \
                 || jsonb_build_object('oid', {oid}, 'datname', {called}, 'datistemplate', false, 'datallowconn', true, \
                      'datdba', {BOOTSTRAP}, 'datconnlimit', -1, 'datacl', NULL)) copy \
               WHERE EXISTS (SELECT FROM pg_database WHERE oid = {source} AND datname = {template}) \
                 AND NOT EXISTS (SELECT FROM noted WHERE refclassid = 'pg_authid'::regclass \
                                 AND refobjid NOT IN (SELECT oid FROM pg_authid)) \
                 AND {is_remembered} AND NOT {REPLAYED} RETURNING oid \
             ), depending AS ( \
               INSERT INTO pg_shdepend \
               SELECT entered.oid, classid, objid, objsubid, refclassid, refobjid, deptype FROM entered, noted \
             ) SELECT oid FROM entered"
        );
        let entered = match admin.run_once("copy a template", &sql) {
            Ok(rows) => number(&text(&rows)) == oid,
            Err(error) => {
                tracing::debug!(%error, "could not tell the server of a copy");
                // If a test terminated the connection, the copy's rows may or may not have been inserted. Drop the
                // copy.
                if error.is_lost() {
                    drop_database(oid, &BTreeSet::from([name.to_owned()]), admin)?;
                }
                false
            }
        };
        if !entered {
            return Ok(false);
        }
        // VACUUM reads the rows of all databases to decide which transactions the server may forget. It may have read
        // them just before our row existed, so check again.
        let still = admin.run("copy a template", &format!("SELECT {}", self.is_remembered(oid)));
        if still.as_ref().is_ok_and(|rows| text(rows) == "t") {
            return Ok(true);
        }
        drop_database(oid, &BTreeSet::from([name.to_owned()]), admin)?;
        still.map(|_| false)
    }

    /// Returns an SQL expression that is true if the server still knows, for each transaction in the files, whether it
    /// committed. The server retains this information as long as any database needs it. The database with this `oid`
    /// doesn't count.
    fn is_remembered(&self, oid: u32) -> String {
        // Transaction numbers wrap around: a number counts as older than another if the other follows within half of
        // the range. Don't use `age()` and `mxid_age()`, which measure from the next free number, because another
        // session may take that number between the two calls.
        let keeps = |column: &str, oldest: &str| {
            format!(
                "EXISTS (SELECT FROM pg_database \
                 WHERE oid <> {oid} AND (bigint '{oldest}' - {column}::text::bigint) & 4294967295 < 2147483648)"
            )
        };
        let [xid, mxid] = &self.noted.oldest;
        format!("{} AND {}", keeps("datfrozenxid", xid), keeps("datminmxid", mxid))
    }
}
