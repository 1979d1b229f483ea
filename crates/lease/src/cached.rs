//! Copies of a template by its files in the cache: what CREATE DATABASE makes, without its two checkpoints and its locks, sharing
//! blocks where the file system can; and they can wait in the middle, while clients need the processors. Whatever SQL may have
//! made of the template in its server is not in them.
//!
//! The server is told of such a copy by a row in `pg_database`, as CREATE DATABASE would have made it of the one that the template had
//! when it was taken into service. Nothing else knows of a database but its directory. No record of the log tells of the files, so there
//! are no such copies where another server or a backup may replay it.

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
/// Where databases have their directories.
const BASE: &str = "base";
/// Where those of other tablespaces are.
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

/// What catalogs that all databases share said of a template when it was taken into service.
#[derive(Debug)]
pub(crate) struct NotedRow {
    /// Its row of `pg_database`, as JSON.
    row: String,
    /// The oldest transactions whose fate the server has to know for its files: `datfrozenxid` and `datminmxid`.
    oldest: [String; 2],
    /// The rows of `pg_shdepend` that say which objects in it depend on roles, as JSON.
    dependencies: String,
}

impl NotedRow {
    /// Selects it, of the row `d` of `pg_database`.
    pub(crate) const COLUMNS: &str = "to_jsonb(d), datfrozenxid, datminmxid, \
        (SELECT coalesce(jsonb_agg(to_jsonb(s)), '[]') FROM pg_shdepend s WHERE dbid = d.oid)";

    /// From the values of these columns.
    pub(crate) fn read(mut next: impl FnMut() -> String) -> Self {
        Self { row: next(), oldest: [next(), next()], dependencies: next() }
    }
}

/// SQL that tells whether the log is, or will be, replayed anywhere but in this server after a crash: by a standby, or on a backup.
const REPLAYED: &str = "(EXISTS (SELECT FROM pg_stat_get_wal_senders()) \
     OR EXISTS (SELECT FROM pg_get_replication_slots() WHERE slot_type = 'physical') \
     OR current_setting('archive_mode') <> 'off')";

/// What came of a copy by files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CachedCopy {
    Made,
    /// It has to be made in another way, if at all.
    Impossible,
    /// It was stopped on the way.
    Stopped,
}

impl CachedFiles {
    /// Those of the database with that `oid` in a server whose `data` are a copy of the `entry`; none if what a copy needs is not
    /// all there, or a crash might empty a part of it while it is made.
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

    /// Makes a copy of the database `template` called `name`, for as long as `go_on` says so; it may take its time.
    ///
    /// # Errors
    /// The server cannot be asked. There is no such copy then, nor where it was not made.
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
        // No database has had this number: what puts all others in doubt until here is not about it.
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

    /// Tells the server of the copy. False where it refuses, another database has the template's name, a role is gone that owns
    /// something in the files, or the fate of transactions is forgotten that may have written rows in them.
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
                // A test may have terminated our connection. Whether the server has the copy is unknown.
                if error.is_lost() {
                    drop_database(oid, &BTreeSet::from([name.to_owned()]), admin)?;
                }
                false
            }
        };
        if !entered {
            return Ok(false);
        }
        // What VACUUM forgets is decided by the rows of all databases: it may have looked at them just before there was this one.
        let still = admin.run("copy a template", &format!("SELECT {}", self.is_remembered(oid)));
        if still.as_ref().is_ok_and(|rows| text(rows) == "t") {
            return Ok(true);
        }
        drop_database(oid, &BTreeSet::from([name.to_owned()]), admin)?;
        still.map(|_| false)
    }

    /// SQL that tells whether the server keeps what is known of transactions that may have written rows in the files: it keeps what
    /// any database needs, of which that with this `oid` does not count.
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
