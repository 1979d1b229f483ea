//! Copies of a template by its files in the cache.
//!
//! They equal those of CREATE DATABASE, without its two checkpoints and its locks, and share blocks where the file system can. Their
//! making can pause while clients need the processors. They lack all changes that SQL has made to the template in its server.
//!
//! A row in `pg_database` tells the server of such a copy. It is the row that CREATE DATABASE would have written when pgfresh took the
//! template into service. Nothing else but its directory makes a database. No record of the log tells of the files, so pgfresh makes
//! no such copies if another server or a backup may replay the log.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use server::literal;
use storage::{Account, DirectoryCopier, Entry};

use crate::LeaseError;
use crate::admin::{AdminPool, MARK, mark_of, number, text};
use crate::drop::drop_database;
use crate::evidence::Evidence;

/// The oid of the superuser that initdb makes. Source: `src/include/catalog/pg_authid.dat`.
pub(crate) const BOOTSTRAP: u32 = 10;
/// Directory with the directories of databases.
const BASE: &str = "base";
/// Directory with the links to other tablespaces.
const TABLESPACES: &str = "pg_tblspc";

/// The files of a template's database in the cache.
#[derive(Debug)]
pub(crate) struct CachedFiles {
    entry: Entry,
    account: Account,
    data: PathBuf,
    oid: u32,
    noted: NotedRow,
}

/// Rows about a template in shared catalogs, from when pgfresh took it into service.
#[derive(Debug)]
pub(crate) struct NotedRow {
    /// Row of `pg_database`, as JSON.
    row: String,
    /// Oldest transactions whose fate the server has to know for the template's files: `datfrozenxid` and `datminmxid`.
    oldest: [String; 2],
    /// Rows of `pg_shdepend` that say which objects in the template depend on roles, as JSON.
    dependencies: String,
}

impl NotedRow {
    /// Selects the values for [`Self::read`] from the row `d` of `pg_database`.
    pub(crate) const COLUMNS: &str = "to_jsonb(d), datfrozenxid, datminmxid, \
        (SELECT coalesce(jsonb_agg(to_jsonb(s)), '[]') FROM pg_shdepend s WHERE dbid = d.oid)";

    /// Reads the values of [`Self::COLUMNS`], in their order.
    pub(crate) fn read(mut next: impl FnMut() -> String) -> Self {
        Self { row: next(), oldest: [next(), next()], dependencies: next() }
    }
}

/// SQL condition: something other than this server after a crash replays the log, now or later. That is a standby, or a restored
/// backup.
const REPLAYED: &str = "(EXISTS (SELECT FROM pg_stat_get_wal_senders()) \
     OR EXISTS (SELECT FROM pg_get_replication_slots() WHERE slot_type = 'physical') \
     OR current_setting('archive_mode') <> 'off')";

/// Outcome of a copy by files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CachedCopy {
    Made,
    /// Not possible by files; another way may be.
    Impossible,
    /// Stopped by `go_on` before its end.
    Stopped,
}

impl CachedFiles {
    /// Returns the files of the database with that `oid` in a server whose `data` are a copy of the `entry`. Returns `None` if some
    /// files are in another place, or if some are unlogged: a crash during a copy might empty these.
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

    /// Copies the database `template` to a new one called `name`, for as long as `go_on` returns true. `go_on` may block.
    ///
    /// # Errors
    /// Fails if the server does not answer. After an error, or any result but [`CachedCopy::Made`], there is no such copy.
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
        // No database has had this oid, so earlier records that put all databases in doubt do not concern it.
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

    /// Tells the server of the copy. Returns false if the server refuses, or may have its log replayed elsewhere. Returns false as
    /// well if another database has the template's name, or if a role is gone that owns something in the files. Returns false, too, if
    /// the server has forgotten the fate of transactions that may have written rows in the files.
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
                // A test may have terminated the connection. Whether the server has the copy is unknown.
                if error.is_lost() {
                    drop_database(oid, &BTreeSet::from([name.to_owned()]), admin)?;
                }
                false
            }
        };
        if !entered {
            return Ok(false);
        }
        // The rows of all databases decide which transactions VACUUM forgets: it may have read them just before this row existed.
        let still = admin.run("copy a template", &format!("SELECT {}", self.is_remembered(oid)));
        if still.as_ref().is_ok_and(|rows| text(rows) == "t") {
            return Ok(true);
        }
        drop_database(oid, &BTreeSet::from([name.to_owned()]), admin)?;
        still.map(|_| false)
    }

    /// Returns SQL that tells whether the server still knows the fate of all transactions that may have written rows in the files. The
    /// server keeps that for as long as any database needs it; the one with this `oid` does not count.
    fn is_remembered(&self, oid: u32) -> String {
        // Transaction numbers wrap around: the older of two is the one from which the other is less than half of all away.
        // `age()` and `mxid_age()` measure from the next number, which another session may take between two calls.
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
