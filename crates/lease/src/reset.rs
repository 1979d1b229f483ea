//! Reset: undoing just what the write-ahead log says was touched, and proving that this was all.
//!
//! The log names every file that was changed since the last reset, in any session, committed or not. What is a user's table
//! is emptied or filled again, what is a sequence is set back, and TRUNCATE, which changes nothing in `pg_class` but files
//! and what the planner is told, is undone, too. Anything else is a reason to drop. What the reset itself has changed is
//! read from the log again: it must be no more than it meant to.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use pgwire::encode;
use server::{AdminConnection, Rows, SessionError, Setting, literal};

use crate::LeaseError;
use crate::address::DatabaseAddress;
use crate::admin::{AdminPool, MARK, mark_of, text, union};
use crate::backend::WaitingBackend;
use crate::catalog::{
    AS_STORED, Catalog, Class, Content, FileMap, Seed, Sequence, Table, TemplateCatalog, is_since, pair,
    planner_columns, select_classes, select_in_place,
};
use crate::digest::{ROW, digest_of, rows_of};
use crate::evidence::Evidence;
use crate::growth::Growth;
use crate::stats::DatabaseStats;
use crate::table::Proof;
use crate::vacuum::{count_filled, remove_pages, restore_planner};
use crate::wal::{Changes, Lsn};

/// How long a session that was just closed may take to be gone.
const STRAGGLER_TIMEOUT: Duration = Duration::from_millis(200);
/// Rows of a table that one lease may have touched without its size being looked at.
const FEW: u64 = 100;
/// A table that grew beyond this is truncated, not emptied row by row; one that cannot be is a reason to drop.
const BLOAT: u64 = 1 << 20;
/// Reason not to reset a database that belongs to SQL.
pub(crate) const GONE: &str = "it was dropped or renamed by SQL";
/// Why a database is not reset in which something was defined.
const DEFINITIONS: &str = "its definitions were changed";
/// Rows of catalogs that may have been changed where all is as before, as after a temporary table: reading what a template
/// tells of them takes longer with each.
const MOST_OF_CATALOGS: u64 = 500;
/// What holds besides in a session that writes what a reset has to write.
const WRITING: [Setting; 2] = [("session_replication_role", "replica"), ("lock_timeout", "5s")];

/// What a reset needs to know of a database.
#[derive(Debug)]
pub(crate) struct Used<'a> {
    pub(crate) address: &'a DatabaseAddress,
    pub(crate) catalog: &'a TemplateCatalog,
    /// What was read of it when its lease ended.
    pub(crate) stats: Option<DatabaseStats>,
    /// Its files, if others than the template's.
    pub(crate) files: Option<FileMap>,
    pub(crate) growth: Growth,
    /// Backends that wait in it.
    pub(crate) waiting: Vec<WaitingBackend>,
    /// Our own session in it, once there was need of one.
    pub(crate) session: Option<AdminConnection>,
}

/// Why a database was not recycled, for people and counters.
#[derive(Debug)]
pub(crate) struct NotRecyclable {
    pub(crate) reason: &'static str,
    /// What failed, if something did.
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

/// What was touched.
#[derive(Debug, Default)]
struct Touched {
    tables: BTreeSet<u32>,
    sequences: BTreeSet<u32>,
    /// Tables of which so many rows were touched that their size is looked at.
    large: BTreeSet<u32>,
    /// `pg_class` was changed, which TRUNCATE does.
    classes: bool,
    /// The client has written values into TOAST tables.
    toast: bool,
    /// The reset has written sizes into `pg_class`.
    sizes: bool,
    /// Other catalogs that were changed, and may be as before: a temporary table comes and goes.
    catalogs: BTreeSet<u32>,
    /// Those of them of which values were changed that are kept apart (TOAST).
    with_values: BTreeSet<u32>,
}

/// Returns a database that has no sessions but those that wait to its template's state, or says why not.
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
        // One of them may have run what is not defined any more.
        used.waiting.clear();
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

/// Waits until the database has no sessions but ours, and rolls back what they have prepared.
fn wait_for_stragglers(admin: &AdminPool, used: &mut Used<'_>) -> Result<DatabaseStats, NotRecyclable> {
    let begun = Instant::now();
    loop {
        let stats = used.stats.take().map_or_else(|| DatabaseStats::read(used.address, admin), Ok)?;
        let ours = used.waiting.len() + usize::from(used.session.is_some());
        if stats.sessions > ours {
            if begun.elapsed() > STRAGGLER_TIMEOUT {
                return Err(NotRecyclable::because("a session did not end"));
            }
            // The server does not announce the end of a session.
            std::thread::sleep(Duration::from_micros(500));
        } else if stats.prepared {
            roll_back_prepared(own_session(admin, used)?)?;
        } else {
            return Ok(stats);
        }
    }
}

/// Rolls back what was prepared and left: its locks would outlive the lease, and the database could not be dropped.
pub(crate) fn roll_back_prepared(session: &mut AdminConnection) -> Result<(), SessionError> {
    let sql = "SELECT gid FROM pg_catalog.pg_prepared_xacts WHERE database = pg_catalog.current_database()";
    for row in session.query(sql)? {
        let gid = row.into_iter().next().flatten().unwrap_or_default();
        session.query(&format!("ROLLBACK PREPARED {}", literal(&gid)))?;
    }
    Ok(())
}

/// Our own session in the database, opened where there is none.
fn own_session<'a>(
    admin: &AdminPool,
    used: &'a mut Used<'_>,
) -> Result<&'a mut AdminConnection, NotRecyclable> {
    if used.session.is_none() {
        used.session = Some(open_own_session(admin, used.address)?);
    }
    used.session.as_mut().ok_or(NotRecyclable::because("no session could be opened"))
}

/// One that writes what a reset has to write, whatever clients have set.
pub(crate) fn open_own_session(
    admin: &AdminPool,
    address: &DatabaseAddress,
) -> Result<AdminConnection, NotRecyclable> {
    Ok(admin.open_in(address, &WRITING)?)
}

/// What the log says was touched, if that can be undone.
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
            // An index follows from its table. TRUNCATE gives a table another file, of which `pg_class` tells.
            Some(Content::Index) | None => {}
        }
    }
    touched.large = rows.iter().filter(|(_, count)| **count > FEW).map(|(oid, _)| *oid).collect();
    if !used.growth.has_room_for(grown) {
        return Err(NotRecyclable::because("its catalogs grew too much"));
    }
    // Transactions that were rolled back have left dead rows.
    touched.tables = rows.into_keys().collect();
    if !changes.committed {
        touched.classes = false;
        touched.catalogs.clear();
    }
    let has_definitions = touched.classes || !touched.catalogs.is_empty();
    if has_definitions && (opaque || rows_of_catalogs > MOST_OF_CATALOGS) {
        return Err(NotRecyclable::because(DEFINITIONS));
    }
    // What is not in the log may have been touched.
    let (tables, sequences) = &used.catalog.unlogged;
    touched.tables.extend(tables);
    touched.sequences.extend(sequences);
    Ok(touched)
}

/// Catalogs without expressions. A session that uses what they describe runs no function of a client's, and no built-in one that a
/// statement does not show. Not here: `pg_type`, in which a domain has its default, and `pg_index`. Source: `src/include/catalog`.
const WITHOUT_EXPRESSIONS: [u32; 6] = [1249, 2224, 2608, 2611, 2615, 2619];

/// Catalogs of what a query computes with: functions, aggregates, operators, casts. Source: `src/include/catalog`.
const COMPUTES: [u32; 4] = [1255, 2600, 2617, 2605];

/// Makes sure that the rows of each catalog that was changed are those of the template.
fn compare_catalogs(admin: &AdminPool, used: &mut Used<'_>, touched: &Touched) -> Result<(), NotRecyclable> {
    let catalog = used.catalog;
    let find = |oid: &u32| Some((*oid, catalog.catalogs.get(oid)?));
    let catalogs: Vec<_> = touched.catalogs.iter().filter_map(find).collect();
    if catalogs.len() < touched.catalogs.len() {
        return Err(NotRecyclable::because(DEFINITIONS));
    }
    let session = own_session(admin, used)?;
    // As many rows as before, and none new: they are the same. That is quicker to see than what is in them. It is not seen of
    // values that are kept apart, nor by what may be another function now.
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

/// The rows of `pg_class` that may not be as in the template. The others are.
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

/// Makes sure that of `pg_class` no more was changed than TRUNCATE and VACUUM change, and adds what has another file: it may
/// hold rows that no log tells of. Returns the rows that may have been changed.
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

/// Has the planner told what the template tells it, and takes note of the files that there are now. Returns up to where
/// the log is written.
fn settle_classes(
    admin: &AdminPool,
    used: &mut Used<'_>,
    changed: &HashMap<u32, Class>,
) -> Result<Lsn, NotRecyclable> {
    let catalog = used.catalog;
    let session = own_session(admin, used)?;
    let sql = format!("BEGIN; {}COMMIT; {MARK}", tell_planner(catalog, changed));
    let mark = mark_of(&session.query(&sql)?);
    used.files = Some(FileMap::new(changed, &catalog.classes));
    Ok(mark)
}

/// Sets back what `pg_class` tells the planner, where it is not what the template's does.
fn tell_planner(catalog: &TemplateCatalog, changed: &HashMap<u32, Class>) -> String {
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

/// Undoes what was touched, in one transaction. Returns up to where the log is written with it, and whether tables were truncated
/// for that.
fn clean(
    admin: &AdminPool,
    used: &mut Used<'_>,
    touched: &mut Touched,
) -> Result<(Lsn, bool), NotRecyclable> {
    let catalog = used.catalog;
    let sizes = read_sizes(admin, used, touched)?;
    // A table with another file has other TOAST, too, and unlogged tables are in no log.
    let has_toast = touched.toast || touched.classes || !catalog.unlogged.0.is_empty();
    let (mut undo, mut truncates) = (Undo::new(catalog, has_toast), false);
    for oid in &touched.tables {
        let Some(table) = catalog.tables.get(oid) else { continue };
        match &table.rows {
            Seed::Fixed(reason) => return Err(NotRecyclable::because(reason.why())),
            Seed::Rows(rows) => undo.seeded.push((table, rows)),
            Seed::Empty => {}
        }
        let grown = sizes.get(oid).is_some_and(|size| *size > BLOAT);
        if grown && table.referenced {
            return Err(NotRecyclable::because("a table grew beyond 1 MB that others refer to"));
        }
        if table.undeletable && table.referenced {
            return Err(NotRecyclable::because(
                "a published table whose rows cannot be deleted was touched that others refer to",
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
    for oid in &touched.sequences {
        let Some(Sequence { last_value, is_called, .. }) = catalog.sequences.get(oid) else { continue };
        let sequence = format!("{oid}::pg_catalog.regclass");
        undo.sql.push_str(&format!("SELECT pg_catalog.setval({sequence}, {last_value}, {is_called}); "));
    }
    touched.classes |= truncates;
    touched.sizes = !undo.emptied.is_empty();
    Ok((run_clean(admin, used, &undo)?, truncates))
}

/// Statements that return tables and sequences to the template's state.
#[derive(Debug)]
struct Undo<'a> {
    catalog: &'a TemplateCatalog,
    /// Begins a transaction that writes, whatever a client has set.
    begin: String,
    /// Deletes all rows of the tables, and sets sequences back.
    sql: String,
    /// Whether the client may have stored values in TOAST.
    has_toast: bool,
    /// Tables whose rows it deletes.
    emptied: Vec<(u32, &'a Table)>,
    /// Tables with rows in the template, and these.
    seeded: Vec<(&'a Table, &'a Vec<u8>)>,
}

impl<'a> Undo<'a> {
    fn new(catalog: &'a TemplateCatalog, has_toast: bool) -> Self {
        let unbounded = if catalog.major < 17 { "" } else { "SET LOCAL transaction_timeout = 0; " };
        let begin = format!(
            "BEGIN READ WRITE; SET LOCAL synchronous_commit = on; SET LOCAL session_replication_role = replica; \
             SET LOCAL lock_timeout = '5s'; SET LOCAL statement_timeout = '60s'; {unbounded}",
        );
        Self { catalog, begin, has_toast, sql: String::new(), emptied: Vec::new(), seeded: Vec::new() }
    }

    /// Runs it. Returns up to where the log is written with it.
    fn run(&self, session: &mut AdminConnection) -> Result<Lsn, NotRecyclable> {
        let Self { catalog, begin, has_toast, sql, emptied, seeded } = self;
        let end = format!("{begin}{MARK}; COMMIT");
        // A session that has set a sequence would tell the next client where it stands.
        let sql = format!("{begin}{sql}COMMIT; DISCARD SEQUENCES; ");
        if emptied.is_empty() && seeded.is_empty() {
            return Ok(mark_of(&session.query(&format!("{sql}{end}"))?));
        }
        session.query(&sql)?;
        if !emptied.is_empty() {
            // The template's rows may have values in TOAST.
            let has_toast = *has_toast || !seeded.is_empty();
            session.query(&remove_pages(emptied, has_toast, catalog.major))?;
        }
        let (filled, planner) = (count_filled(emptied), restore_planner(catalog, emptied));
        // The mark follows the commit in the log.
        let end = format!("{planner}COMMIT; {end}");
        if seeded.is_empty() {
            let rows = session.query(&format!("{begin}{filled}{end}"))?;
            return expect_none(&rows).map(|()| mark_of(&rows));
        }
        expect_none(&session.query(&format!("{begin}{filled}{AS_STORED}"))?)?;
        for (table, rows) in seeded {
            let copy = format!("COPY {} FROM STDIN (FORMAT binary)", table.name);
            session.copy_in(&copy, [&encode(b'd', rows)[..]])?;
        }
        Ok(mark_of(&session.query(&end)?))
    }
}

/// Makes sure that the first of these rows says that no table has pages. A standby or a replication slot may still need some.
fn expect_none(rows: &Rows) -> Result<(), NotRecyclable> {
    if text(rows) == "0" {
        return Ok(());
    }
    Err(NotRecyclable::because("its deleted rows could not be removed"))
}

/// Runs it in a session that waits for a client, if it does not matter in which: to empty tables and to set sequences
/// depends on nothing that a client may have set, since all of it is qualified, and ASCII in any encoding. To write rows does.
fn run_clean(admin: &AdminPool, used: &mut Used<'_>, undo: &Undo<'_>) -> Result<Lsn, NotRecyclable> {
    let waiting = used.waiting.iter().position(|waiting| waiting.backend.is_superuser());
    if let Some(at) = waiting.filter(|_| undo.seeded.is_empty() && used.session.is_none()) {
        let (waiting, mark) = used.waiting.swap_remove(at).lend(|session| undo.run(session))?;
        used.waiting.push(waiting);
        return Ok(mark);
    }
    undo.run(own_session(admin, used)?)
}

/// Bytes on disk of the tables that may have grown, with the values that are kept apart.
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

/// What was changed while the reset was at work must be what it has changed itself.
fn check_own_changes(changes: &Changes, used: &Used<'_>, touched: &Touched) -> Result<(), NotRecyclable> {
    let meanwhile = || NotRecyclable::because("it was changed while it was reset");
    if changes.doubt.is_some() {
        return Err(meanwhile());
    }
    let files = used.files.as_ref().unwrap_or(&used.catalog.files);
    for file in changes.files.keys() {
        let is_ours = match files.get(file.number) {
            Some(Content::Table(oid)) => touched.tables.contains(&oid),
            Some(Content::Sequence(oid)) => touched.sequences.contains(&oid),
            Some(Content::Index) => true,
            Some(Content::Classes) => touched.classes || touched.sizes,
            None => touched.classes,
            Some(Content::Catalog(_) | Content::CatalogValues(_)) => false,
        };
        if !is_ours {
            return Err(meanwhile());
        }
    }
    Ok(())
}
