//! Puts template databases into service and copies them.
//!
//! When pgfresh puts a template into service, it renames the template's database, which frees the old name for leases.
//! It also forbids connections to the database, so that ordinary clients can't change it. The exception is `template1`,
//! which keeps its name and may be changed by users.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

pub(crate) use ::template::PREFIX;
use ::template::{complete_copy, create_copy, end_sessions};
use server::{Rows, literal, set_admin_settings};
use storage::Entry;
use sys::{ProcessHandle, lock, sound, wait_readable};

use crate::address::DatabaseAddress;
use crate::admin::{AdminPool, MARK, Prepared, mark_of, number, text};
use crate::backends::backend::{CatalogStamp, of_major, stamp, stamp_of};
use crate::backends::demand::Demand;
use crate::error::LeaseError;
use crate::lsn::Lsn;
use crate::options::{LeaseOptions, TemplateDatabase};
use crate::reset::catalog::{HORIZON, Seed, Table, TemplateCatalog, queries};
use crate::reset::note;
use crate::runtime::attributes::Attributes;
use crate::runtime::cached::{CachedCopy, CachedFiles, NotedRow};
use crate::runtime::drop::drop_named;
use crate::wal::changes::FileChanges;
use crate::wal::evidence::Evidence;

/// When a lease ends, how long to wait for a worker to start the template's next copy.
const NEXT_COPY: Duration = Duration::from_millis(100);
/// How long the end of a lease waits for that copy to finish. pgfresh reads the template's catalog in the copy and
/// can't reset the leased database without this catalog.
const LONGEST_COPY: Duration = Duration::from_mins(1);

/// Returns the name of a template's database in service, which leaves the template's own name free for leases.
pub(crate) fn database_of(template: &str) -> String {
    format!("{PREFIX}template_{template}")
}

/// A template in service.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    pub(crate) name: String,
    pub(crate) database: String,
    pub(crate) oid: u32,
    pub(crate) bytes: u64,
    /// Attributes that CREATE DATABASE doesn't copy. `None` for `template1`, because its copies should be exactly what
    /// SQL would create.
    pub(crate) attributes: Option<Arc<Attributes>>,
    /// Whether an event trigger fires whenever a session starts in a copy. PostgreSQL has supported such triggers since
    /// version 17.
    pub(crate) fires_at_login: bool,
    /// The cache entry that contains the template, if the server's data directory is an exact copy of one.
    pub(crate) entry: Option<Entry>,
    /// The template's files in the cache, if pgfresh can copy the template by copying these files.
    cached: Option<Arc<CachedFiles>>,
    /// A transaction ID newer than all rows in a new copy. Rows that sessions write in the copy may be newer still.
    pub(crate) horizon: String,
    /// The catalog used for resets, and whether using a copy can leave state behind in a backend. pgfresh reads both in
    /// one of the first copies. `template1` doesn't have a catalog, because users may change it.
    pub(crate) catalog: Arc<OnceLock<(TemplateCatalog, bool)>>,
    /// Set once pgfresh has found that it can't read the catalog. The value is true if the template may have unlogged
    /// tables.
    pub(crate) unreadable: Arc<OnceLock<bool>>,
    /// Prevents two threads from reading the template's catalog at the same time.
    pub(crate) reading: Arc<Mutex<()>>,
    coming: Arc<Coming>,
    /// Whether pgfresh has already made a copy without reading the catalog. It does this only once, so that the first
    /// client doesn't have to wait.
    pub(crate) passed_over: Arc<AtomicBool>,
    /// The server's generation when pgfresh made the first copy.
    pub(crate) generation: Arc<OnceLock<Generation>>,
    /// Number of backends that the last leases needed.
    pub(crate) demand: Arc<Mutex<Demand>>,
}

/// Identifies the period between two server crashes by the checkpointer's process ID, which changes with each crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Generation(pub(crate) u32);

/// Counts the template's copies in progress.
#[derive(Debug, Default)]
struct Coming {
    copies: Mutex<usize>,
    changed: Condvar,
}

/// Counts one copy in [`Coming`] until this value is dropped.
#[derive(Debug)]
pub(crate) struct ComingCopy(Arc<Coming>);

impl Coming {
    /// Waits for a copy to start, for at most `next`, and then for all copies to finish, for at most `end`. The limits
    /// are necessary because a copy may have to wait for the server and new copies may start in the meantime. Stops
    /// waiting once `is_unread` returns `false`.
    fn wait(&self, next: Duration, end: Duration, is_unread: impl Fn() -> bool) {
        let is_none = |copies: &mut usize| *copies == 0 && is_unread();
        let is_any = |copies: &mut usize| *copies > 0 && is_unread();
        let waited = self.changed.wait_timeout_while(lock(&self.copies), next, is_none);
        let copies = sound(waited).0;
        drop(sound(self.changed.wait_timeout_while(copies, end, is_any)));
    }
}

impl Drop for ComingCopy {
    fn drop(&mut self) {
        *lock(&self.0.copies) -= 1;
        self.0.changed.notify_all();
    }
}

impl Template {
    /// Puts a template into service. Renames its database, which frees the template's name for leases, and forbids
    /// connections to it.
    ///
    /// `template1` keeps its name and its usual role, because users may change it before creating databases. If the
    /// server's data directory is an exact copy of a cache entry, `entry` is that entry.
    pub(crate) fn take(
        template: &TemplateDatabase,
        entry: Option<Entry>,
        data: &Path,
        admin: &AdminPool,
    ) -> Result<Self, LeaseError> {
        let TemplateDatabase { name, database } = template;
        let called = close(name, database, admin)?;
        // If there is a cache entry, it records the size, which saves the server from examining each file.
        let size = if entry.is_some() { "0" } else { "pg_database_size(oid)" };
        let sql = format!(
            "SELECT oid, {size}, coalesce(to_jsonb(d) ->> 'dathasloginevt', 'false'), {HORIZON}, {}, {} \
             FROM pg_database d WHERE datname = {}",
            NotedRow::COLUMNS,
            Attributes::COLUMNS,
            literal(&called)
        );
        let rows = admin.run("look at a template", &sql)?;
        let row = rows
            .into_iter()
            .next()
            .ok_or_else(|| LeaseError::UnknownTemplate { name: name.clone(), known: Vec::new() })?;
        let mut columns = row.into_iter().map(Option::unwrap_or_default);
        let mut next = || columns.next().unwrap_or_default();
        let (oid, size) = (number(&next()), next().parse().unwrap_or(0));
        let noted = entry.as_ref().map(|entry| entry.bytes_in(&format!("base/{oid}")));
        let (fires_at_login, horizon, row) = (next() == "true", next(), NotedRow::read(&mut next));
        let attributes = Some(Arc::new(Attributes::read(&mut next))).filter(|_| called != "template1");
        let cached = entry.as_ref().and_then(|entry| CachedFiles::of(entry, data, oid, row)).map(Arc::new);
        Ok(Self {
            name: name.clone(),
            database: called,
            oid,
            bytes: noted.unwrap_or(size),
            attributes,
            fires_at_login,
            horizon,
            entry,
            cached,
            catalog: Arc::default(),
            unreadable: Arc::default(),
            reading: Arc::default(),
            coming: Arc::default(),
            passed_over: Arc::default(),
            generation: Arc::default(),
            demand: Arc::default(),
        })
    }

    /// Returns true if pgfresh can recycle the template's copies. It can't for `template1`, which may have changed
    /// since the copy.
    pub(crate) fn is_recyclable(&self) -> bool {
        self.database != "template1"
    }

    /// Returns the catalog for resets, once pgfresh has read it.
    pub(crate) fn catalog(&self) -> Option<&TemplateCatalog> {
        self.catalog.get().map(|(catalog, _)| catalog)
    }

    /// Returns true if pgfresh has yet to read the catalog.
    pub(crate) fn is_to_be_read(&self) -> bool {
        self.is_recyclable() && self.catalog().is_none() && self.unreadable.get().is_none()
    }

    /// Returns the reason why the template has no catalog.
    pub(crate) fn why_unknown(&self) -> &'static str {
        match self.unreadable.get() {
            Some(_) => "its template's catalog could not be read",
            None => "its template's catalog was not known yet",
        }
    }

    /// Reads the note left by an earlier server on the same cache entry. Returns the catalog and whether using a copy
    /// may leave traces in a backend.
    pub(crate) fn recall(&self, major: u32) -> Option<(TemplateCatalog, bool)> {
        let entry = self.entry.as_ref()?;
        note::read(&entry.recall(&self.note())?, &subject(entry, major))
    }

    /// Stores the catalog as a note for the next server on the same entry.
    pub(crate) fn remember(&self, catalog: &TemplateCatalog, leaves_traces: bool) {
        let Some(entry) = &self.entry else { return };
        let Some(text) = note::write(catalog, leaves_traces, &subject(entry, catalog.major)) else { return };
        if let Err(error) = entry.remember(&self.note(), &text) {
            tracing::debug!(%error, template = self.name, "could not save a template's catalog");
        }
    }

    /// Returns the note's file name, which contains the template's oid, because a cache entry can contain several
    /// templates.
    fn note(&self) -> String {
        format!("catalog-{}", self.oid)
    }

    /// Announces that a copy is in progress until the returned value is dropped.
    pub(crate) fn announce_copy(&self) -> ComingCopy {
        *lock(&self.coming.copies) += 1;
        self.coming.changed.notify_all();
        ComingCopy(Arc::clone(&self.coming))
    }

    /// Returns the catalog. If pgfresh hasn't read the catalog yet, waits for a copy from which it can do so.
    pub(crate) fn catalog_when_read(&self) -> Option<&TemplateCatalog> {
        self.coming.wait(NEXT_COPY, LONGEST_COPY, || self.is_to_be_read());
        self.catalog()
    }

    /// Returns true if the template has unlogged tables or sequences. Returns false
    /// while pgfresh hasn't determined this yet, which is safe, because no client gets
    /// a copy of a template with unlogged tables before pgfresh has read the catalog.
    pub(crate) fn has_unlogged(&self) -> bool {
        let of_catalog =
            |catalog: &TemplateCatalog| !catalog.unlogged.0.is_empty() || !catalog.unlogged.1.is_empty();
        self.catalog().map_or_else(|| self.unreadable.get() == Some(&true), of_catalog)
    }

    /// Returns true if using the template's objects may leave traces in a backend.
    pub(crate) fn may_leave_traces(&self) -> bool {
        self.catalog.get().is_none_or(|(_, leaves_traces)| *leaves_traces)
    }

    /// Returns true if the template has unlogged tables that a reset can't restore.
    pub(crate) fn has_fixed_unlogged(&self) -> bool {
        let is_fixed = |table: &Table| table.unlogged && matches!(table.rows, Seed::Fixed(_));
        let of_catalog = |catalog: &TemplateCatalog| catalog.tables.values().any(is_fixed);
        self.catalog().map_or_else(|| self.has_unlogged(), of_catalog)
    }

    /// Makes a copy called `name`, including the attributes that CREATE DATABASE omits, and returns the copy's oid. Calls
    /// `go_on` periodically. Once it returns `false`, stops copying and returns `None`.
    ///
    /// # Errors
    /// Returns an error with SQLSTATE 42P04 if another database has the name, and [`LeaseError::Changed`] if the
    /// template has changed. After an error, there is no copy.
    pub(crate) fn copy(
        &self,
        name: &str,
        major: u32,
        admin: &AdminPool,
        evidence: &Evidence,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Option<u32>, LeaseError> {
        let by_files = self.copy_cached(name, admin, evidence, go_on)?;
        if by_files == CachedCopy::Stopped {
            return Ok(None);
        }
        if by_files == CachedCopy::Impossible {
            let sql = create_copy(&self.database, name, major);
            if let Err(error) = copy_without_sessions(&self.database, &sql, admin) {
                if !error.is_lost() {
                    return Err(error);
                }
                // A test may have terminated pgfresh's connection before or after the server made the copy. Start over.
                drop_named(name, admin)?;
                copy_without_sessions(&self.database, &sql, admin)?;
            }
        }
        let result = self.complete(name, admin, evidence).and_then(|oid| {
            // The server may have copied a different database that had taken the template's name.
            let is_other = evidence.source(oid).is_some_and(|source| source != self.oid);
            // No client knows about the copy yet, so the log must contain nothing but its creation.
            let is_touched = !evidence.take(oid).files.is_empty();
            if is_other || is_touched || by_files == CachedCopy::Impossible && self.is_changed(evidence) {
                return Err(LeaseError::Changed(self.name.clone()));
            }
            Ok(Some(oid))
        });
        if result.is_err() {
            drop_named(name, admin)?;
        }
        result
    }

    /// Makes a copy from the files in the cache, unless SQL has changed the template, which is possible for
    /// `template1`.
    fn copy_cached(
        &self,
        name: &str,
        admin: &AdminPool,
        evidence: &Evidence,
        go_on: &dyn Fn() -> bool,
    ) -> Result<CachedCopy, LeaseError> {
        let Some(cached) = &self.cached else { return Ok(CachedCopy::Impossible) };
        if !self.is_recyclable() {
            evidence.catch_up(admin)?;
            if !evidence.is_as_at_start(self.oid) {
                return Ok(CachedCopy::Impossible);
            }
        }
        cached.copy(&self.database, name, admin, evidence, go_on)
    }

    /// Sets the template's attributes on the copy and returns the copy's oid.
    fn complete(&self, name: &str, admin: &AdminPool, evidence: &Evidence) -> Result<u32, LeaseError> {
        let sql = format!("SELECT oid FROM pg_database WHERE datname = {}; {MARK}", literal(name));
        let complete = |how: String| admin.run("complete a copy", &format!("{how}; {sql}"));
        let mut rows = match self.attributes.as_ref().filter(|attributes| !attributes.are_usual()) {
            None => admin.run("complete a copy", &sql)?,
            Some(attributes) => match complete(attributes.put_on(&oid_of(name))) {
                // SQL renamed or dropped a role, so copy the attributes from the template instead.
                Err(error) if !error.is_lost() => complete(complete_copy(&self.database, name))?,
                completed => completed?,
            },
        };
        evidence.read(mark_of(&rows));
        rows.pop();
        let oid = rows.last().and_then(|row| row.first()?.as_deref()?.parse().ok());
        oid.ok_or_else(|| LeaseError::NotLeased(name.to_owned()))
    }

    /// Returns true if, according to the log, the template's contents have changed since pgfresh put it into service.
    /// Returns false for `template1`, which is allowed to change.
    fn is_changed(&self, evidence: &Evidence) -> bool {
        if !self.is_recyclable() {
            return false;
        }
        evidence.changes(self.oid).files.values().any(FileChanges::is_of_contents)
    }
}

/// How long to wait for sessions to exit. If any remain, CREATE DATABASE waits for another 5 s. Source:
/// `CountOtherDBBackends` in `src/backend/storage/ipc/procarray.c`.
const SESSIONS_TIMEOUT: Duration = Duration::from_secs(1);

/// Terminates all sessions in `database` and waits for their processes to exit, but no longer than the timeout.
pub(crate) fn evict(database: &str, admin: &AdminPool) -> Result<(), LeaseError> {
    let end = Instant::now() + SESSIONS_TIMEOUT;
    let sql = end_sessions(database);
    loop {
        let rows = admin.run("end the sessions of a database", &sql)?;
        if rows.is_empty() || Instant::now() >= end {
            return Ok(());
        }
        let pids = rows.iter().filter_map(|row| row.first()?.as_deref()?.parse().ok());
        for process in pids.filter_map(ProcessHandle::of_number) {
            let left = end.saturating_duration_since(Instant::now());
            if let Err(error) = wait_readable(process, left) {
                tracing::debug!(%error, "could not wait for the end of a session");
                return Ok(());
            }
        }
    }
}

/// Runs `sql`, which copies `database`. If sessions prevent the copy, terminates them and retries once.
pub(crate) fn copy_without_sessions(
    database: &str,
    sql: &str,
    admin: &AdminPool,
) -> Result<Rows, LeaseError> {
    match admin.run_once("copy a database", sql) {
        Err(error) if error.sqlstate() == "55006" => {
            evict(database, admin)?;
            admin.run_once("copy a database", sql)
        }
        copied => copied,
    }
}

/// Discards the statistics of a database that becomes a template. Since a setup has just filled the database, its
/// statistics would prompt autovacuum to process it. Without them, autovacuum skips the unused database, and all of the
/// template's copies are identical.
pub(crate) fn discard_statistics(database: &str, admin: &AdminPool) -> Result<(), LeaseError> {
    if database == "template1" {
        return Ok(());
    }
    let sql = format!(
        "UPDATE pg_database SET datallowconn = true WHERE datname = {} RETURNING oid",
        literal(database)
    );
    let oid = number(&text(&admin.run("open a template", &sql)?));
    admin.ask(&DatabaseAddress::new(oid, database), "discard the statistics of a template", |session| {
        session.query("SELECT pg_stat_reset()").map(drop)
    })
}

/// Renames a template's database to its name in service, forbids connections to it, and terminates its sessions.
/// Returns the new name.
///
/// `ALTER DATABASE … RENAME` would have to wait for the sessions to exit. If one of them belongs to a background worker
/// that restarts, the worker will connect to a lease with the old name.
fn close(template: &str, database: &str, admin: &AdminPool) -> Result<String, LeaseError> {
    if database == "template1" {
        return Ok(database.to_owned());
    }
    let called = database_of(template);
    let sql = format!(
        "UPDATE pg_database SET datname = {}, datistemplate = true, datallowconn = false WHERE datname = {}",
        literal(&called),
        literal(database)
    );
    admin.run("close a template", &sql)?;
    evict(&called, admin)?;
    Ok(called)
}

/// Returns an SQL expression for the oid of the database with this name.
fn oid_of(name: &str) -> String {
    format!("(SELECT oid FROM pg_database WHERE datname = {})", literal(name))
}

/// Returns a note's subject, which determines whether the note still applies. The subject identifies the cache entry's
/// files and how this version of pgfresh reads them.
fn subject(entry: &Entry, major: u32) -> String {
    [&entry.identity(), env!("CARGO_PKG_VERSION"), &set_admin_settings(major, &[]), &queries(major)]
        .join("\n")
}

/// Renames a database and allows connections to it again, because [`HIDE`] may have forbidden them. `$3` lists the
/// database's possible previous names.
macro_rules! name {
    () => {
        "UPDATE pg_database SET datname = $2, datallowconn = true WHERE oid = $1 AND datname = ANY ($3) RETURNING "
    };
}

/// Renames a database to its name as a ready database and forbids connections to it. Programs that visit all databases
/// usually skip those that forbid connections. `$3` lists the database's possible previous names.
pub(crate) const HIDE: Prepared = Prepared {
    name: "hide",
    types: &["oid", "name", "name[]"],
    sql: "UPDATE pg_database SET datname = $2, datallowconn = false WHERE oid = $1 AND datname = ANY ($3) RETURNING oid",
};

/// Returns the statement that renames a database and selects its stamp, for servers with this major version.
pub(crate) const fn name_in(major: u32) -> &'static Prepared {
    const TYPES: &[&str] = &["oid", "name", "name[]"];
    const BEFORE_15: Prepared =
        Prepared { name: "name", types: TYPES, sql: concat!(name!(), stamp!(before 15)) };
    const BEFORE_17: Prepared =
        Prepared { name: "name", types: TYPES, sql: concat!(name!(), stamp!(before 17)) };
    const SINCE_17: Prepared = Prepared { name: "name", types: TYPES, sql: concat!(name!(), stamp!()) };
    of_major(major, [&BEFORE_15, &BEFORE_17, &SINCE_17])
}

/// Renames a database, even while it has sessions. `names` lists its possible previous names. Returns the database's
/// stamp and the end of the log.
///
/// `ALTER DATABASE … RENAME` would fail while there are sessions. Our statement doesn't affect them, because sessions
/// refer to their database by oid.
///
/// # Errors
/// Returns an error with SQLSTATE 23505 if another database has the name, and [`LeaseError::NotLeased`] if SQL has
/// dropped or renamed the database.
pub(crate) fn rename(
    to: &DatabaseAddress,
    names: &mut BTreeSet<String>,
    options: &LeaseOptions,
    admin: &AdminPool,
) -> Result<(CatalogStamp, Lsn), LeaseError> {
    let (rows, mark) = admin.rename_and_mark("name a database", name_in(options.major), to, names)?;
    if rows.is_empty() {
        return Err(LeaseError::NotLeased(to.name.clone()));
    }
    Ok((stamp_of(&rows, &options.data), mark))
}

#[cfg(test)]
impl Template {
    /// Returns a template for tests that don't use its server.
    pub(crate) fn fake() -> Self {
        Self {
            name: "app".to_owned(),
            database: database_of("app"),
            oid: 16384,
            bytes: 0,
            attributes: None,
            fires_at_login: false,
            entry: None,
            cached: None,
            horizon: String::new(),
            catalog: Arc::default(),
            unreadable: Arc::default(),
            reading: Arc::default(),
            coming: Arc::default(),
            passed_over: Arc::default(),
            generation: Arc::default(),
            demand: Arc::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_for_coming_copy_ends_at_its_bound() {
        let coming = Arc::new(Coming::default());
        *lock(&coming.copies) += 1;
        let copy = ComingCopy(Arc::clone(&coming));
        let (hour, moment) = (Duration::from_hours(1), Duration::from_millis(50));
        let begun = Instant::now();
        coming.wait(hour, moment, || true);
        assert!(begun.elapsed() >= moment, "it is awaited");
        coming.wait(hour, hour, || false);
        drop(copy);
        coming.wait(moment, hour, || true);
    }
}
