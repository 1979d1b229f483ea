//! Copies a template by copying its files from the cache, which is faster than CREATE DATABASE.
//!
//! Such a copy equals that of CREATE DATABASE. But it needs no checkpoints and no locks, it shares blocks where the file system
//! supports that, and it can pause while clients need the processors. It doesn't contain changes that SQL has made to the template
//! in its server.
//!
//! A database consists of its directory and a row in `pg_database`. So pgfresh copies the directory and inserts a row. The row is
//! the one that CREATE DATABASE would have inserted when pgfresh took the template into service. No log record mentions the files.
//! So pgfresh makes no such copies if another server or a backup may replay the log.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use server::literal;
use storage::{Account, DirectoryCopier, Entry};

use crate::admin::{AdminPool, MARK, mark_of, number, text};
use crate::error::LeaseError;
use crate::runtime::drop::drop_database;
use crate::wal::evidence::Evidence;

/// Oid of the superuser that initdb creates. Source: `src/include/catalog/pg_authid.dat`.
pub(crate) const BOOTSTRAP: u32 = 10;
/// Directory that contains the directories of databases.
const BASE: &str = "base";
/// Directory that contains links to other tablespaces.
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

/// Rows of shared catalogs about a template, as they were when pgfresh took it into service.
#[derive(Debug)]
pub(crate) struct NotedRow {
    /// The row of `pg_database`, as JSON.
    row: String,
    /// Oldest transactions in the template's files about which the server must know if they have committed: `datfrozenxid` and
    /// `datminmxid`.
    oldest: [String; 2],
    /// Rows of `pg_shdepend` that tell which objects in the template depend on roles, as JSON.
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

/// SQL condition that is true if anything except this server's crash recovery replays the log, now or later. Examples are a standby
/// and a restored backup.
const REPLAYED: &str = "(EXISTS (SELECT FROM pg_stat_get_wal_senders()) \
     OR EXISTS (SELECT FROM pg_get_replication_slots() WHERE slot_type = 'physical') \
     OR current_setting('archive_mode') <> 'off')";

/// Result of a copy by files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CachedCopy {
    Made,
    /// The files cannot be copied, but another way may work.
    Impossible,
    /// `go_on` has stopped the copy.
    Stopped,
}

impl CachedFiles {
    /// Returns the files of the database with this `oid` in a server whose `data` are a copy of the `entry`. Returns `None` if some
    /// files are in another place. Also returns `None` if some files are unlogged, because a crash during a copy might empty these.
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

    /// Copies the database `template` to a new database called `name`, as long as `go_on` returns true. `go_on` may block.
    ///
    /// # Errors
    /// Returns an error if the server doesn't answer. After an error, or any result except [`CachedCopy::Made`], the copy doesn't
    /// exist.
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
        // No earlier database has had this oid. So earlier records that put all databases in doubt don't concern this one.
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

    /// Inserts the rows that make the copy known to the server. Returns false if the server refuses, or if its log may be replayed
    /// elsewhere. Also returns false if a different database has the template's name, or if a role that owns something in the files
    /// is gone. The last case is that the server no longer knows if transactions that may have written rows in the files have
    /// committed.
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
                // A test may have terminated the connection, so the server may or may not have the copy.
                if error.is_lost() {
                    drop_database(oid, &BTreeSet::from([name.to_owned()]), admin)?;
                }
                false
            }
        };
        if !entered {
            return Ok(false);
        }
        // VACUUM reads the rows of all databases to decide which transactions the server can forget. It may have read them just
        // before this row existed.
        let still = admin.run("copy a template", &format!("SELECT {}", self.is_remembered(oid)));
        if still.as_ref().is_ok_and(|rows| text(rows) == "t") {
            return Ok(true);
        }
        drop_database(oid, &BTreeSet::from([name.to_owned()]), admin)?;
        still.map(|_| false)
    }

    /// Returns an SQL expression that tells whether the server still knows if each transaction in the files has committed. The
    /// server keeps this information as long as any database needs it. The database with this `oid` does not count.
    fn is_remembered(&self, oid: u32) -> String {
        // Transaction numbers wrap around. Of two numbers, the older one is the one from which the other is less than half of the
        // range away. `age()` and `mxid_age()` measure from the next number, which another session may take between two calls.
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
