//! Copies of a template by its files in the cache: what CREATE DATABASE makes, without its two checkpoints and its locks, sharing
//! blocks where the file system can; and they can wait in the middle, while clients need the processors. Whatever SQL may have
//! made of the template in its server is not in them.
//!
//! The server is told of such a copy by a row in `pg_database`. Nothing else knows of a database but its directory.

use std::path::{Path, PathBuf};

use server::literal;
use storage::{Account, DirectoryCopier, Entry};

use crate::LeaseError;
use crate::admin::{AdminPool, MARK, mark_of, number, text};
use crate::drop::drop_database;
use crate::evidence::Evidence;

/// Where databases have their directories.
const BASE: &str = "base";
/// Where those of other tablespaces are.
const TABLESPACES: &str = "pg_tblspc";

/// The files of a template's database in the cache.
#[derive(Debug, Clone)]
pub(crate) struct CachedFiles {
    entry: Entry,
    account: Account,
    data: PathBuf,
    oid: u32,
    /// The oldest transactions whose fate the server has to know for these files: `datfrozenxid` and `datminmxid`.
    oldest: [String; 2],
}

impl CachedFiles {
    /// Those of the database with that `oid` in a server whose `data` are a copy of the `entry`; none if what a copy needs is not
    /// all there, or a crash might empty a part of it while it is made.
    pub(crate) fn of(entry: &Entry, data: &Path, oid: u32, oldest: [String; 2]) -> Option<Self> {
        let directory = format!("{BASE}/{oid}");
        let is_unlogged = entry.names_in(&directory).any(|name| name.ends_with("_init"));
        let is_elsewhere = entry.has_directories_in(TABLESPACES) || entry.has_directories_in(&directory);
        if is_unlogged || is_elsewhere || entry.names_in(&directory).next().is_none() {
            return None;
        }
        let account = Account::for_server().ok()?;
        Some(Self { entry: entry.clone(), account, data: data.to_owned(), oid, oldest })
    }

    /// Makes a copy of the database `template` called `name`, for as long as `go_on` says so; it may take its time. False where
    /// it has to be made in another way, if at all.
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
    ) -> Result<bool, LeaseError> {
        if !go_on() {
            return Ok(false);
        }
        let next = format!("SELECT pg_nextoid('pg_database', 'oid', 'pg_database_oid_index'); {MARK}");
        let rows = admin.run("copy a template", &next)?;
        let oid = number(&text(&rows));
        evidence.read(mark_of(&rows));
        // No database has had this number: what puts all others in doubt until here is not about it.
        drop(evidence.take(oid));
        let copier =
            DirectoryCopier { entry: &self.entry, parent: BASE, data: &self.data, account: &self.account };
        let [from, to] = [self.oid, oid].map(|oid| oid.to_string());
        match copier.copy(&from, &to, go_on) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(error) => {
                tracing::warn!(%error, "could not copy a template by its files");
                return Ok(false);
            }
        }
        let entered = self.enter(oid, template, name, admin);
        if !matches!(entered, Ok(true))
            && let Err(error) = copier.remove(&to)
        {
            tracing::warn!(%error, "could not remove a copy that the server does not know");
        }
        entered
    }

    /// Tells the server of the copy. False where it refuses, another database has the template's name, or the fate of transactions
    /// is forgotten that may have written rows in the files: the server keeps what any database needs.
    fn enter(&self, oid: u32, template: &str, name: &str, admin: &AdminPool) -> Result<bool, LeaseError> {
        let [xid, mxid] = &self.oldest;
        let (source, template, called) = (self.oid, literal(template), literal(name));
        let sql = format!(
            "WITH entered AS ( \
               INSERT INTO pg_database SELECT copy.* FROM pg_database d, jsonb_populate_record(d, jsonb_build_object( \
                 'oid', {oid}, 'datname', {called}, 'datistemplate', false, 'datallowconn', true, \
                 'datfrozenxid', '{xid}', 'datminmxid', '{mxid}')) copy \
               WHERE d.oid = {source} AND d.datname = {template} \
                 AND EXISTS (SELECT FROM pg_database WHERE age(datfrozenxid) >= age('{xid}'::xid)) \
                 AND EXISTS (SELECT FROM pg_database WHERE mxid_age(datminmxid) >= mxid_age('{mxid}'::xid)) RETURNING oid \
             ), depending AS ( \
               INSERT INTO pg_shdepend \
               SELECT entered.oid, classid, objid, objsubid, refclassid, refobjid, deptype \
               FROM entered, pg_shdepend WHERE dbid = {source} \
             ) SELECT oid FROM entered"
        );
        match admin.run_once("copy a template", &sql) {
            Ok(rows) => Ok(number(&text(&rows)) == oid),
            Err(error) => {
                tracing::debug!(%error, "could not tell the server of a copy");
                // A test may have terminated our connection. Whether the server has the copy is unknown.
                if error.is_lost() {
                    drop_database(name, admin)?;
                }
                Ok(false)
            }
        }
    }
}
