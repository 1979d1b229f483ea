//! Resets a used database to its template's state by undoing only the changes found in the write-ahead log.
//!
//! A reset takes about a millisecond, a new copy tens of milliseconds. The log also proves that nothing else changed.
//!
//! The log identifies every file that any session has changed since the last reset, even without a commit. The
//! reset empties and refills user tables, restores sequences, and undoes TRUNCATE, which changes only files
//! and the planner's size estimates in `pg_class`. After any other change, pgfresh drops the database instead.
//! Finally, the reset reads the log again to check that only the reset itself has changed anything since.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

use pgwire::encode;
use server::{AdminConnection, Rows, SessionError, Setting, literal};

use crate::address::DatabaseAddress;
use crate::admin::{AdminPool, MARK, mark_of, text, union};
use crate::backends::backend::WaitingBackend;
use crate::error::LeaseError;
use crate::lsn::Lsn;
use crate::reset::catalog::{
    AS_STORED, Catalog, Class, Content, FileMap, Seed, Sequence, Table, TemplateCatalog, is_since, pair,
    planner_columns, select_classes, select_in_place,
};
use crate::reset::digest::{ROW, digest_of, rows_of};
use crate::reset::growth::Growth;
use crate::reset::stats::DatabaseStats;
use crate::reset::vacuum::{PAGES_LEFT, count_filled, has_pages, remove_pages, restore_planner};
use crate::table::Proof;
use crate::wal::changes::Changes;
use crate::wal::evidence::Evidence;
use crate::wal::record::RelationFile;

/// How long the reset waits for sessions to exit.
const STRAGGLER_TIMEOUT: Duration = Duration::from_millis(200);
/// The reset checks a table's size only if more rows than this have changed.
const FEW: u64 = 100;
/// The reset truncates tables larger than this (in bytes) instead of deleting their rows. If it can't truncate one,
/// pgfresh drops the database.
const BLOAT: u64 = 1 << 20;
/// Reason not to reset a database: SQL dropped or renamed it.
pub(crate) const GONE: &str = "it was dropped or renamed by SQL";
/// Reason not to reset a database: a client changed definitions.
const DEFINITIONS: &str = "its definitions were changed";
/// If at most this many catalog rows have changed, the reset compares the catalogs with the template's. They may be
/// equal again, for example if a temporary table came and went. With more rows, the comparison would take too long.
const MOST_OF_CATALOGS: u64 = 500;
/// Maximum number of sequences reset per statement. A SELECT can have 1664 columns. Source: `MaxTupleAttributeNumber`.
const MOST_COLUMNS: usize = 1600;
/// Additional settings for the session that a reset uses to write.
const WRITING: [Setting; 2] = [("session_replication_role", "replica"), ("lock_timeout", "5s")];

/// Makes the server flush the log when the transaction commits.
const FLUSH: &str = "pg_catalog.set_config('synchronous_commit', 'on', true)";

/// A used database along with everything needed to reset it.
#[derive(Debug)]
pub(crate) struct Used<'a> {
    pub(crate) address: &'a DatabaseAddress,
    pub(crate) catalog: &'a TemplateCatalog,
    /// Statistics from the end of the lease. If `None`, the reset reads them itself.
    pub(crate) stats: Option<DatabaseStats>,
    /// The database's files. `None` as long as they equal the template's.
    pub(crate) files: Option<FileMap>,
    pub(crate) growth: Growth,
    /// Idle backends in the database.
    pub(crate) waiting: Vec<WaitingBackend>,
    /// pgfresh's own session in the database, once a reset has opened one.
    pub(crate) session: Option<AdminConnection>,
}

/// The reason why pgfresh couldn't recycle a database, for messages and counters.
#[derive(Debug)]
pub(crate) struct NotRecyclable {
    pub(crate) reason: &'static str,
    /// The error message, if any.
    pub(crate) error: Option<String>,
}

impl NotRecyclable {
    pub(crate) fn because(reason: &'static str) -> Self {
        Self { reason, error: None }
    }
}

impl From<SessionError> for NotRecyclable {
    fn from(error: SessionError) -> Self {
        Self { reason: "a statement of the reset failed", error: Some(error.to_string()) }
    }
}

impl From<LeaseError> for NotRecyclable {
    fn from(error: LeaseError) -> Self {
        if let LeaseError::NotLeased(_) = error {
            return Self::because(GONE);
        }
        let detail = error.detail().unwrap_or_default();
        Self { reason: "a statement of the reset failed", error: Some(format!("{error}: {detail}")) }
    }
}

/// The changes that a reset has to undo or check.
#[derive(Debug, Default)]
struct Touched {
    tables: BTreeSet<u32>,
    sequences: BTreeSet<u32>,
    /// Tables with so many changed rows that the reset checks their size.
    large: BTreeSet<u32>,
    /// Whether `pg_class` changed, for example because of TRUNCATE.
    classes: bool,
    /// Whether the client wrote values to TOAST tables.
    toast: bool,
    /// Tables that the reset itself emptied with DELETE and VACUUM. VACUUM writes their sizes to `pg_class`.
    emptied: BTreeSet<u32>,
    /// Whether the reset made the server count the pages left in these tables.
    is_counted: bool,
    /// Table files that still had pages with rows (dead or alive) after the lease, according to the log.
    filled: HashSet<RelationFile>,
    /// Other changed catalogs. They may still equal the template's, for example after a temporary table came and went.
    catalogs: BTreeSet<u32>,
    /// The subset of `catalogs` whose TOAST values changed.
    with_values: BTreeSet<u32>,
}

/// Resets a database to its template's state or returns the reason why that's impossible. The database must have no
/// sessions except pgfresh's own and idle backends.
pub(crate) fn reset(
    admin: &AdminPool,
    evidence: &Evidence,
    used: &mut Used<'_>,
) -> Result<Proof, NotRecyclable> {
    used.waiting.retain(WaitingBackend::is_alive);
    if used.session.as_mut().is_some_and(|session| !session.is_alive()) {
        used.session = None;
    }
    let stats = wait_for_stragglers(admin, used)?;
    if stats.attributes != used.catalog.attributes {
        return Err(NotRecyclable::because("its settings, owner or grants were changed"));
    }
    let mut touched = read_changes(&evidence.changes_up_to(stats.mark, used.address.oid), used)?;
    if touched.is_nothing() {
        return Ok(Proof::new());
    }
    if !touched.catalogs.iter().all(|catalog| WITHOUT_EXPRESSIONS.contains(catalog)) {
        // Close backends used by the lease, since they may have called a function that no longer exists.
        used.waiting.retain(|waiting| !waiting.is_used);
    }
    if !touched.catalogs.is_empty() {
        compare_catalogs(admin, used, &touched)?;
    }
    let mut changed = None;
    if touched.classes {
        changed = Some(find_truncated(admin, used, &mut touched)?);
    }
    let (mut mark, has_truncated) = clean(admin, used, &mut touched)?;
    if touched.classes {
        let changed = changed.filter(|_| !has_truncated);
        let changed = changed.map_or_else(|| changed_classes(admin, used), Ok)?;
        mark = settle_classes(admin, used, &changed)?;
    }
    check_own_changes(&evidence.changes_up_to(mark, used.address.oid), used, &touched)?;
    Ok(Proof::new())
}

impl Touched {
    fn is_nothing(&self) -> bool {
        self.tables.is_empty() && self.sequences.is_empty() && !self.classes && self.catalogs.is_empty()
    }
}

/// Waits until only pgfresh's own sessions are left in the database and rolls back transactions prepared by clients.
fn wait_for_stragglers(admin: &AdminPool, used: &mut Used<'_>) -> Result<DatabaseStats, NotRecyclable> {
    let begun = Instant::now();
    loop {
        let stats = used.stats.take().map_or_else(|| DatabaseStats::read(used.address, admin), Ok)?;
        let ours = used.waiting.len() + usize::from(used.session.is_some());
        if stats.sessions > ours {
            if begun.elapsed() > STRAGGLER_TIMEOUT {
                return Err(NotRecyclable::because("a session did not end"));
            }
            // The server doesn't notify us when a session exits, so poll.
            std::thread::sleep(Duration::from_micros(500));
        } else if stats.prepared {
            roll_back_prepared(own_session(admin, used)?)?;
        } else {
            return Ok(stats);
        }
    }
}

/// Rolls back prepared transactions, which would otherwise hold their locks and block dropping the database.
pub(crate) fn roll_back_prepared(session: &mut AdminConnection) -> Result<(), SessionError> {
    let sql = "SELECT gid FROM pg_catalog.pg_prepared_xacts WHERE database = pg_catalog.current_database()";
    for row in session.query(sql)? {
        let gid = row.into_iter().next().flatten().unwrap_or_default();
        session.query(&format!("ROLLBACK PREPARED {}", literal(&gid)))?;
    }
    Ok(())
}

/// Returns pgfresh's own session in the database, opening one if necessary.
fn own_session<'a>(
    admin: &AdminPool,
    used: &'a mut Used<'_>,
) -> Result<&'a mut AdminConnection, NotRecyclable> {
    if used.session.is_none() {
        used.session = Some(open_own_session(admin, used.address)?);
    }
    used.session.as_mut().ok_or(NotRecyclable::because("no session could be opened"))
}

/// Opens a session that a reset can use to write, even if clients have changed settings that would prevent writes.
pub(crate) fn open_own_session(
    admin: &AdminPool,
    address: &DatabaseAddress,
) -> Result<AdminConnection, NotRecyclable> {
    Ok(admin.open_in(address, &WRITING)?)
}

/// Classifies the changes in the log by how the reset undoes them. Returns the reason if a change can't be undone.
fn read_changes(changes: &Changes, used: &mut Used<'_>) -> Result<Touched, NotRecyclable> {
    if let Some(doubt) = changes.doubt {
        return Err(NotRecyclable::because(doubt));
    }
    let mut touched = Touched::default();
    let files = used.files.as_ref().unwrap_or(&used.catalog.files);
    let mut rows: HashMap<u32, u64> = HashMap::new();
    let (mut rows_of_catalogs, mut grown, mut opaque) = (0, 0, false);
    for (file, change) in &changes.files {
        match files.get(file.number) {
            Some(Content::Table(oid)) => {
                touched.toast |= files.is_toast(file.number);
                if change.filled {
                    touched.filled.insert(*file);
                }
                *rows.entry(oid).or_default() += change.inserted + change.updated + change.deleted;
            }
            Some(Content::Sequence(oid)) => {
                touched.sequences.insert(oid);
            }
            Some(Content::Classes) => {
                touched.classes = true;
                grown += change.inserted + change.updated;
                opaque |= change.other;
            }
            Some(content @ (Content::Catalog(oid) | Content::CatalogValues(oid))) => {
                touched.catalogs.insert(oid);
                if content == Content::CatalogValues(oid) {
                    touched.with_values.insert(oid);
                }
                rows_of_catalogs += change.inserted + change.updated + change.deleted;
                grown += change.inserted + change.updated;
                opaque |= change.in_place || change.other;
            }
            // An index's contents follow from its table. Unknown files are new, and `pg_class` shows their relations.
            Some(Content::Index) | None => {}
        }
    }
    touched.large = rows.iter().filter(|(_, count)| **count > FEW).map(|(oid, _)| *oid).collect();
    if !used.growth.has_room_for(grown) {
        return Err(NotRecyclable::because("its catalogs grew too much"));
    }
    // Empty these tables even if nothing was committed, because a rollback leaves dead rows behind.
    touched.tables = rows.into_keys().collect();
    if !changes.committed {
        touched.classes = false;
        touched.catalogs.clear();
    }
    let has_definitions = touched.classes || !touched.catalogs.is_empty();
    if has_definitions && (opaque || rows_of_catalogs > MOST_OF_CATALOGS) {
        return Err(NotRecyclable::because(DEFINITIONS));
    }
    // Changes to unlogged tables and sequences don't appear in the log, so always reset these.
    let (tables, sequences) = &used.catalog.unlogged;
    touched.tables.extend(tables);
    touched.sequences.extend(sequences);
    Ok(touched)
}

/// Catalogs without expressions. If only these changed, sessions ran no user-defined functions and only those built-in
/// ones that their statements show. The list excludes `pg_index` and, because of domain defaults, `pg_type`. Source:
/// `src/include/catalog`.
const WITHOUT_EXPRESSIONS: [u32; 6] = [1249, 2224, 2608, 2611, 2615, 2619];

/// Catalogs of functions, aggregates, operators and casts, which determine query results. Source:
/// `src/include/catalog`.
const COMPUTES: [u32; 4] = [1255, 2600, 2617, 2605];

/// Checks that each changed catalog has the same rows as in the template.
fn compare_catalogs(admin: &AdminPool, used: &mut Used<'_>, touched: &Touched) -> Result<(), NotRecyclable> {
    let catalog = used.catalog;
    let find = |oid: &u32| Some((*oid, catalog.catalogs.get(oid)?));
    let catalogs: Vec<_> = touched.catalogs.iter().filter_map(find).collect();
    if catalogs.len() < touched.catalogs.len() {
        return Err(NotRecyclable::because(DEFINITIONS));
    }
    let session = own_session(admin, used)?;
    // A catalog is unchanged if it has as many rows as before and none of them is new. Counting rows is faster than
    // comparing them, but it misses changed TOAST values and can't be trusted if a client may have redefined functions.
    let computes_alike = COMPUTES.iter().all(|oid| !touched.catalogs.contains(oid));
    let is_counted = |oid: &u32| computes_alike && !touched.with_values.contains(oid);
    let is_since = is_since(&catalog.horizon, "xmin");
    let counts = |name: &str| {
        let rows = rows_of(name);
        format!("SELECT {}, count(*), count(*) FILTER (WHERE {is_since}) FROM {rows}", literal(name))
    };
    let counted = catalogs.iter().filter(|(oid, _)| is_counted(oid));
    let counts: Vec<_> = counted.map(|(_, catalog)| counts(&catalog.name)).collect();
    let rows = union(session, &counts)?;
    let is_as_before = |catalog: &&Catalog| {
        let column = |row: &[Option<String>], at: usize| row.get(at).cloned().flatten().unwrap_or_default();
        rows.iter().any(|row| {
            column(row, 0) == catalog.name
                && column(row, 1) == catalog.rows.to_string()
                && column(row, 2) == "0"
        })
    };
    let others: Vec<_> =
        catalogs.into_iter().map(|(_, catalog)| catalog).filter(|catalog| !is_as_before(catalog)).collect();
    if others.is_empty() {
        return Ok(());
    }
    let digests = catalog.digests.ask();
    let digests = digests.ok_or(NotRecyclable::because("its template's definitions were not known yet"))?;
    let sql: Vec<_> = others.iter().map(|catalog| digest_of(&catalog.name, ROW)).collect();
    let rows = union(session, &sql)?;
    let is_same = |row: &Vec<Option<String>>| {
        let column = |at: usize| row.get(at).and_then(Option::as_deref).unwrap_or_default();
        digests.get(column(0)).is_some_and(|before| before == column(1))
    };
    if rows.len() == others.len() && rows.iter().all(is_same) {
        return Ok(());
    }
    Err(NotRecyclable::because(DEFINITIONS))
}

/// Returns the `pg_class` rows that may differ from the template's.
fn changed_classes(admin: &AdminPool, used: &mut Used<'_>) -> Result<HashMap<u32, Class>, NotRecyclable> {
    let catalog = used.catalog;
    let session = own_session(admin, used)?;
    let in_place = session.query(&select_in_place(catalog.major))?;
    if in_place.len() != catalog.classes.len() {
        return Err(NotRecyclable::because(DEFINITIONS));
    }
    let is_other =
        |(oid, now): &(u32, String)| catalog.classes.get(oid).is_none_or(|before| before.in_place != *now);
    let others = in_place.into_iter().filter_map(pair).filter(is_other).map(|(oid, _)| oid.to_string());
    let condition = format!(
        "WHERE {} OR c.oid = ANY ('{{{}}}')",
        is_since(&catalog.horizon, "c.xmin"),
        others.collect::<Vec<_>>().join(",")
    );
    let changed = Class::read(&session.query(&select_classes(catalog.major, &condition))?);
    let is_as_before = |(oid, class): (&u32, &Class)| {
        catalog.classes.get(oid).is_some_and(|before| before.digest == class.digest)
    };
    if changed.iter().all(is_as_before) {
        return Ok(changed);
    }
    Err(NotRecyclable::because(DEFINITIONS))
}

/// Checks that only TRUNCATE and VACUUM changed `pg_class` and returns the rows that may have changed.
/// Relations with a new file are added to `touched`, because the log might not show their rows.
fn find_truncated(
    admin: &AdminPool,
    used: &mut Used<'_>,
    touched: &mut Touched,
) -> Result<HashMap<u32, Class>, NotRecyclable> {
    let catalog = used.catalog;
    let changed = changed_classes(admin, used)?;
    let now = FileMap::new(&changed, &catalog.classes);
    let moved = now.moved_since(used.files.as_ref().unwrap_or(&catalog.files));
    for oid in moved.ok_or(NotRecyclable::because(DEFINITIONS))? {
        let known = if catalog.sequences.contains_key(&oid) {
            touched.sequences.insert(oid)
        } else {
            touched.tables.insert(oid);
            catalog.tables.contains_key(&oid)
        };
        if !known && !catalog.sequences.contains_key(&oid) {
            return Err(NotRecyclable::because(DEFINITIONS));
        }
    }
    Ok(changed)
}

/// Restores the planner's size estimates in `pg_class` and records the current files. Returns the end of the log.
fn settle_classes(
    admin: &AdminPool,
    used: &mut Used<'_>,
    changed: &HashMap<u32, Class>,
) -> Result<Lsn, NotRecyclable> {
    let catalog = used.catalog;
    let session = own_session(admin, used)?;
    let sql = format!("BEGIN; {}COMMIT; {MARK}", restore_planner_estimates(catalog, changed));
    let mark = mark_of(&session.query(&sql)?);
    used.files = Some(FileMap::new(changed, &catalog.classes));
    Ok(mark)
}

/// Returns statements that restore the planner's size estimates in `pg_class` where they differ from the template's.
fn restore_planner_estimates(catalog: &TemplateCatalog, changed: &HashMap<u32, Class>) -> String {
    let columns = planner_columns(catalog.major).collect::<Vec<_>>().join(", ");
    let mut sql = String::new();
    for (oid, class) in changed {
        if let Some(Class { planner, .. }) =
            catalog.classes.get(oid).filter(|before| before.planner != class.planner)
        {
            sql.push_str(&format!(
                "UPDATE pg_catalog.pg_class SET ({columns}) = ROW({planner}) WHERE oid = {oid}; "
            ));
        }
    }
    sql
}

/// Undoes all changes. Returns the end of the log afterwards and whether any table was truncated.
fn clean(
    admin: &AdminPool,
    used: &mut Used<'_>,
    touched: &mut Touched,
) -> Result<(Lsn, bool), NotRecyclable> {
    let catalog = used.catalog;
    let sizes = read_sizes(admin, used, touched)?;
    let (mut undo, mut truncates) = (Undo::new(catalog, touched), false);
    for oid in &touched.tables {
        let Some(table) = catalog.tables.get(oid) else { continue };
        match &table.rows {
            Seed::Fixed(reason) => return Err(NotRecyclable::because(reason.why())),
            Seed::Rows(rows) => undo.seeded.push((table, rows)),
            Seed::Empty => {}
        }
        let grown = sizes.get(oid).is_some_and(|size| *size > BLOAT);
        if grown && table.referenced {
            return Err(NotRecyclable::because("a table that other tables reference grew beyond 1 MB"));
        }
        if table.undeletable && table.referenced {
            return Err(NotRecyclable::because(
                "a published table was touched whose rows cannot be deleted and that other tables reference",
            ));
        }
        let must_truncate = grown || table.undeletable;
        truncates |= must_truncate;
        let verb = if must_truncate {
            "TRUNCATE"
        } else {
            undo.emptied.push((*oid, table));
            "DELETE FROM"
        };
        undo.sql.push_str(&format!("{verb} ONLY {}; ", table.name));
    }
    let set_back = |oid: &u32| {
        let Sequence { last_value, is_called, .. } = catalog.sequences.get(oid)?;
        Some(format!("pg_catalog.setval({oid}::pg_catalog.regclass, {last_value}, {is_called})"))
    };
    for calls in touched.sequences.iter().filter_map(set_back).collect::<Vec<_>>().chunks(MOST_COLUMNS) {
        undo.sql.push_str(&format!("SELECT {}; ", calls.join(", ")));
    }
    touched.classes |= truncates;
    undo.counts |= !undo.seeded.is_empty();
    (touched.emptied, touched.is_counted) = (undo.emptied.iter().map(|(oid, _)| *oid).collect(), undo.counts);
    Ok((run_clean(admin, used, &undo)?, truncates))
}

/// The statements that restore tables and sequences to the template's state.
#[derive(Debug)]
struct Undo<'a> {
    catalog: &'a TemplateCatalog,
    /// Statements that begin a writable transaction, even if a client has changed settings that would prevent writes.
    begin: String,
    /// Statements that empty the tables and reset sequences.
    sql: String,
    /// Whether TOAST tables may contain values.
    has_toast: bool,
    /// Whether the server must count the remaining pages, because the log might not show them.
    counts: bool,
    /// Tables that `sql` empties with DELETE, by oid.
    emptied: Vec<(u32, &'a Table)>,
    /// Tables that have rows in the template, along with these rows.
    seeded: Vec<(&'a Table, &'a Vec<u8>)>,
}

impl<'a> Undo<'a> {
    fn new(catalog: &'a TemplateCatalog, touched: &Touched) -> Self {
        let unbounded = if server::Major(catalog.major).has_transaction_timeout() {
            "SET LOCAL transaction_timeout = 0; "
        } else {
            ""
        };
        let begin = format!(
            "BEGIN READ WRITE; SET LOCAL session_replication_role = replica; SET LOCAL lock_timeout = '5s'; \
             SET LOCAL statement_timeout = '60s'; {unbounded}",
        );
        // The log may omit rows in new files and always omits those of unlogged tables, including rows in TOAST tables.
        let counts = touched.classes || !catalog.unlogged.0.is_empty();
        let (has_toast, sql) = (touched.toast || counts, String::new());
        Self { catalog, begin, has_toast, counts, sql, emptied: Vec::new(), seeded: Vec::new() }
    }

    /// Runs the statements and returns the end of the log afterwards.
    fn run(&self, session: &mut AdminConnection) -> Result<Lsn, NotRecyclable> {
        let Self { catalog, begin, has_toast, counts, sql, emptied, seeded } = self;
        // This commit also flushes earlier ones.
        let mark = format!("BEGIN READ WRITE; {MARK}, {FLUSH}; COMMIT");
        // Without DISCARD, the idle backend's next client could read these values with `currval()`.
        let sql = format!("{begin}{sql}COMMIT; DISCARD SEQUENCES; ");
        if emptied.is_empty() && seeded.is_empty() {
            return Ok(mark_of(&session.query(&format!("{sql}{mark}"))?));
        }
        let mut steps = vec![sql];
        if !emptied.is_empty() {
            // Values of the template's rows may be in TOAST tables.
            steps.push(remove_pages(emptied, *has_toast || !seeded.is_empty(), catalog.major));
        }
        // Write the mark after the commit, so that it also follows the commit in the log.
        let end = format!("{}COMMIT; {mark}", restore_planner(catalog, emptied));
        let count = if *counts { count_filled(emptied) } else { String::new() };
        let begin = format!("{begin}SET LOCAL enable_seqscan = off; ");
        if seeded.is_empty() {
            steps.push(format!("{begin}{count}{end}"));
            let rows = session.query_all(&steps)?;
            if *counts {
                expect_none(&rows)?;
            }
            return Ok(mark_of(&rows));
        }
        steps.push(format!("{begin}{count}{AS_STORED}"));
        expect_none(&session.query_all(&steps)?)?;
        for (table, rows) in seeded {
            let copy = format!("COPY {} FROM STDIN (FORMAT binary)", table.name);
            session.copy_in(&copy, [&encode(b'd', rows)[..]])?;
        }
        Ok(mark_of(&session.query(&end)?))
    }
}

/// Checks that the number of tables that still have pages (in the first row) is zero.
fn expect_none(rows: &Rows) -> Result<(), NotRecyclable> {
    if text(rows) == "0" {
        return Ok(());
    }
    Err(NotRecyclable::because(PAGES_LEFT))
}

/// Runs the statements in an idle backend if they only empty tables and reset sequences. Client settings can't affect
/// such statements, because all names are qualified and ASCII in any encoding. Writing rows requires pgfresh's own
/// session.
fn run_clean(admin: &AdminPool, used: &mut Used<'_>, undo: &Undo<'_>) -> Result<Lsn, NotRecyclable> {
    let waiting = used.waiting.iter().position(|waiting| waiting.backend.is_superuser());
    if let Some(at) = waiting.filter(|_| undo.seeded.is_empty() && used.session.is_none()) {
        let (waiting, mark) = used.waiting.swap_remove(at).lend(|session| undo.run(session))?;
        used.waiting.push(waiting);
        return Ok(mark);
    }
    undo.run(own_session(admin, used)?)
}

/// Returns the disk size in bytes of each table that may have grown, including its TOAST table.
fn read_sizes(
    admin: &AdminPool,
    used: &mut Used<'_>,
    touched: &Touched,
) -> Result<HashMap<u32, u64>, NotRecyclable> {
    if touched.large.is_empty() {
        return Ok(HashMap::new());
    }
    let oids: Vec<_> = touched.large.iter().map(u32::to_string).collect();
    let sql = format!(
        "SELECT c, pg_catalog.pg_table_size(c) FROM pg_catalog.unnest('{{{}}}'::pg_catalog.oid[]) c",
        oids.join(",")
    );
    let rows: Rows = own_session(admin, used)?.query(&sql)?;
    let column = |row: &Vec<Option<String>>, at: usize| {
        row.get(at).cloned().flatten().and_then(|text| text.parse().ok())
    };
    Ok(rows.iter().filter_map(|row| Some((u32::try_from(column(row, 0)?).ok()?, column(row, 1)?))).collect())
}

/// Checks that the reset itself made all changes logged since it began.
fn check_own_changes(changes: &Changes, used: &Used<'_>, touched: &Touched) -> Result<(), NotRecyclable> {
    let files = used.files.as_ref().unwrap_or(&used.catalog.files);
    let is_ours = |file: &RelationFile| match files.get(file.number) {
        Some(Content::Table(oid)) => touched.tables.contains(&oid),
        Some(Content::Sequence(oid)) => touched.sequences.contains(&oid),
        Some(Content::Index) => true,
        Some(Content::Classes) => touched.classes || !touched.emptied.is_empty(),
        None => touched.classes,
        Some(Content::Catalog(_) | Content::CatalogValues(_)) => false,
    };
    if changes.doubt.is_some() || !changes.files.keys().all(is_ours) {
        return Err(NotRecyclable::because("it was changed while it was reset"));
    }
    let is_emptied =
        |file: u32| matches!(files.get(file), Some(Content::Table(oid)) if touched.emptied.contains(&oid));
    if !touched.is_counted && has_pages(&changes.files, &touched.filled, is_emptied) {
        return Err(NotRecyclable::because(PAGES_LEFT));
    }
    Ok(())
}
