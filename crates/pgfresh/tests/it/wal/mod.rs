//! Tests the WAL reader: compares the changes that it finds in each major's WAL with digests of all relations.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lease::{Changes, Lsn, RelationFile, WalReader};
use server::{AdminConnection, VersionRequest};
use template::{Provisioner, ServerOptions, Started};

use crate::common::depth::some_of;
use crate::common::{WAIT_TIMEOUT, majors, postgres, wait_until};

const TEMPLATE: &str = include_str!("template.sql");
/// Statements, below headings with the relations that they change, or with "nothing", "doubt" or "anything".
/// ";;" separates queries.
const STATEMENTS: &str = include_str!("statements.sql");

/// Settings that affect how the server logs a statement.
#[derive(Debug, Clone, Copy)]
struct Variant {
    level: &'static str,
    compression: usize,
    full_pages: bool,
    /// Whether hint bits are logged, as with data checksums.
    hints: bool,
    counts: bool,
}

/// Returns a variant for each `wal_level`, or all combinations if `PGFRESH_WAL_ALL` is set.
fn variants() -> Vec<Variant> {
    let chosen = [
        ("minimal", 1, true, true, false),
        ("replica", 0, false, false, true),
        ("logical", 2, true, true, true),
    ];
    let mut all = Vec::new();
    for level in ["minimal", "replica", "logical"] {
        for compression in 0..3 {
            for flags in 0..8 {
                let (full_pages, hints, counts) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
                if std::env::var_os("PGFRESH_WAL_ALL").is_some()
                    || chosen.contains(&(level, compression, full_pages, hints, counts))
                {
                    all.push(Variant { level, compression, full_pages, hints, counts });
                }
            }
        }
    }
    all
}

/// Server, a database "app" with the template in it, and a reader for the server's WAL.
struct Fixture {
    started: Started,
    admin: AdminConnection,
    reader: WalReader,
    _cache: tempfile::TempDir,
}

impl Fixture {
    fn new(major: u32, variant: Variant) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let cache = storage::Cache::locate(Some(&directory.path().join("cache"))).unwrap();
        let on = |on| if on { "on" } else { "off" };
        let settings = [
            ("max_prepared_transactions", "8"),
            ("wal_level", variant.level),
            ("max_wal_senders", "0"),
            ("full_page_writes", on(variant.full_pages)),
            ("wal_log_hints", on(variant.hints)),
            ("track_counts", on(variant.counts)),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let installation: VersionRequest = postgres(major).parse().unwrap();
        let server_options = ServerOptions { installation, settings, ..ServerOptions::default() };
        let provisioner =
            Provisioner::find(server_options, cache, PathBuf::from(env!("CARGO_BIN_EXE_pgfresh"))).unwrap();
        let mut started = provisioner.start(&|_| ()).unwrap();
        let mut admin = started.session.take().unwrap();
        compress(&mut admin, variant.compression);
        admin.query("CREATE DATABASE app").unwrap();
        started.server.session("app").unwrap().query(TEMPLATE).unwrap();
        let position = flush(&mut admin);
        let reader = WalReader::open(&started.server.run().data(), position).unwrap();
        Self { started, admin, reader, _cache: directory }
    }

    fn session(&self, database: &str) -> AdminConnection {
        self.started.server.session(database).unwrap()
    }

    fn oid(&mut self, database: &str) -> u32 {
        let sql = format!("SELECT oid FROM pg_database WHERE datname = '{database}'");
        self.admin.query(&sql).unwrap()[0][0].as_ref().unwrap().parse().unwrap()
    }

    /// Reads the WAL up to the current position.
    fn advance(&mut self) {
        let end = flush(&mut self.admin);
        self.reader.advance(end).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Waits until only this session and the inspector's session are left, because other sessions might roll back
    /// changes when they end.
    fn wait_for_ends(&mut self) {
        let others = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
        wait_until("the end of other sessions", || {
            self.admin.query(others).unwrap()[0][0].as_deref() == Some("1")
        });
    }
}

/// Sets the compression: 0 is off, 2 is lz4 if the server supports it, and any other number is the default method.
fn compress(admin: &mut AdminConnection, method: usize) {
    let methods = "SELECT array_to_string(enumvals, ',') FROM pg_settings WHERE name = 'wal_compression'";
    let known = admin.query(methods).unwrap()[0][0].clone().unwrap_or_default();
    let wanted = match method {
        0 => "off",
        2 if known.contains("lz4") => "lz4",
        _ => "on",
    };
    admin.query(&format!("ALTER SYSTEM SET wal_compression = {wanted}")).unwrap();
    admin.query("SELECT pg_reload_conf()").unwrap();
}

/// Makes the server write all WAL to its files. Returns the end position.
fn flush(admin: &mut AdminConnection) -> Lsn {
    admin.query("SET synchronous_commit = on").unwrap();
    let end = admin.query("SELECT pg_logical_emit_message(true, 'pgfresh', '')").unwrap();
    end[0][0].as_ref().unwrap().parse().unwrap()
}

/// Each relation's file, and a digest of its rows.
type Relations = BTreeMap<String, (RelationFile, String)>;

/// Returns the names of files, including those of indexes.
fn file_names(session: &mut AdminConnection, oid: u32) -> HashMap<RelationFile, String> {
    let sql = "SELECT COALESCE(o.oid::regclass || '~toast', c.oid::regclass::text), \
        COALESCE(NULLIF(c.reltablespace, 0), d.dattablespace), CASE WHEN c.relisshared THEN 0 ELSE d.oid::bigint END, \
        pg_relation_filenode(c.oid) FROM pg_class c LEFT JOIN pg_class o ON o.reltoastrelid = c.oid, pg_database d \
        WHERE datname = current_database() AND c.relkind IN ('r', 'm', 'S', 't', 'i')";
    let rows = session.query(sql).unwrap();
    let files = rows.into_iter().map(|row| {
        let number = |at: usize| row[at].as_ref().unwrap().parse().unwrap();
        let file = RelationFile { tablespace: number(1), database: number(2), number: number(3) };
        assert!(file.database == 0 || file.database == oid);
        (file, row[0].clone().unwrap())
    });
    files.collect()
}

/// Returns the relations among `which` whose rows the WAL covers, including system, shared and TOAST tables.
fn relations(session: &mut AdminConnection, oid: u32, which: &str) -> Relations {
    let files: HashMap<String, RelationFile> =
        file_names(session, oid).into_iter().map(|(file, name)| (name, file)).collect();
    let sql = format!(
        "SELECT c.oid::regclass, COALESCE(o.oid::regclass || '~toast', c.oid::regclass::text), c.relkind \
         FROM pg_class c LEFT JOIN pg_class o ON o.reltoastrelid = c.oid \
         WHERE c.relkind IN ('r', 'm', 'S', 't') AND c.relpersistence = 'p' AND ({which})"
    );
    let mut parts = Vec::new();
    for row in session.query(&sql).unwrap() {
        let (relation, name) = (row[0].as_ref().unwrap(), row[1].as_ref().unwrap());
        let columns = match row[2].as_deref() {
            Some("S") => "(last_value, is_called)",
            Some("t") => "(chunk_id, chunk_seq, chunk_data)",
            _ => "t",
        };
        parts.push(format!(
            "SELECT '{name}', count(*) || ' ' || sum(hashtextextended({columns}::text, 0)) FROM ONLY {relation} t"
        ));
    }
    let rows = session.query(&parts.join(" UNION ALL ")).unwrap();
    let digests = rows.into_iter().map(|mut row| {
        let name = row[0].take().unwrap();
        let file = files[&name];
        (name, (file, row[1].take().unwrap_or_default()))
    });
    digests.collect()
}

/// Makes the server log the next value of each sequence, because it logs 32 values in advance.
fn log_next_values(session: &mut AdminConnection) {
    let sql = "SELECT oid::regclass FROM pg_class WHERE relkind = 'S' AND relpersistence = 'p'";
    for row in session.query(sql).unwrap() {
        let name = row[0].as_ref().unwrap();
        session.query(&format!("SELECT setval('{name}', last_value, is_called) FROM {name}")).unwrap();
    }
}

/// Result that the reader must return for certain statements.
#[derive(Debug, Clone)]
enum Expected {
    /// Changes to exactly these relations, and whether the changes last.
    Exactly(BTreeSet<String>, bool),
    Anything,
    Doubt,
}

/// Returns the statements that `major` supports, each with the expected result.
fn statements(major: u32) -> Vec<(Expected, &'static str)> {
    let mut expected = Some(Expected::Anything);
    let mut all = Vec::new();
    for line in STATEMENTS.lines() {
        let Some(heading) = line.strip_prefix("-- ") else {
            all.extend(expected.clone().map(|expected| (expected, line)));
            continue;
        };
        let (since, names) = heading.split_once(": ").unwrap_or(("13", heading));
        let lasts = !names.ends_with(", undone") && names != "nothing";
        let list = names.split(", ").filter(|name| !matches!(*name, "nothing" | "undone")).map(str::to_owned);
        let parsed = match names {
            "anything" => Expected::Anything,
            "doubt" => Expected::Doubt,
            _ => Expected::Exactly(list.collect(), lasts),
        };
        expected = (since.parse::<u32>().unwrap() <= major).then_some(parsed);
    }
    all
}

/// Runs all statements in one database, and compares the changes in the WAL with the actual changes.
fn check(major: u32, variant: Variant) {
    let mut fixture = Fixture::new(major, variant);
    let oid = fixture.oid("app");
    let mut inspector = fixture.session("app");
    let mut before = relations(&mut inspector, oid, "true");
    let mut wrong = Vec::new();
    for (at, (expected, line)) in statements(major).into_iter().enumerate() {
        if at % 5 == 0 {
            fixture.admin.query("CHECKPOINT").unwrap();
        }
        log_next_values(&mut inspector);
        let mut session = fixture.session("app");
        let known = file_names(&mut session, oid);
        fixture.advance();
        fixture.reader.take(oid);
        fixture.reader.take_shared();
        for query in line.split(" ;; ") {
            let result = session.query(query);
            let may_fail = query.contains("currval") || query.contains("restore_point");
            if let (Err(error), false) = (result, may_fail) {
                wrong.push(format!("{query}: {error}"));
            }
        }
        drop(session);
        fixture.wait_for_ends();
        fixture.advance();
        let changes = fixture.reader.take(oid);
        let shared = fixture.reader.take_shared().into_iter().map(|change| change.file).collect();
        let after = match &expected {
            Expected::Exactly(..) => {
                let tables = relations(
                    &mut inspector,
                    oid,
                    "c.oid > 16383 OR c.relname IN ('pg_class', 'pg_attribute')",
                );
                before.clone().into_iter().chain(tables).collect()
            }
            _ => relations(&mut inspector, oid, "true"),
        };
        let sound = check_soundness(&before, &after, &changes, &shared);
        for result in [sound, check_expected(&expected, &changes, &shared, &known)] {
            wrong.extend(result.err().map(|why| format!("{line}: {why}")));
        }
        before = after;
    }
    assert!(wrong.is_empty(), "{major}, {variant:?}:\n{}", wrong.join("\n"));
}

/// Checks that the changes name every relation whose digest differs, and that a lasting change counts as committed.
fn check_soundness(
    before: &Relations,
    after: &Relations,
    changes: &Changes,
    shared: &BTreeSet<RelationFile>,
) -> Result<(), String> {
    if changes.doubt.is_some() {
        return Ok(());
    }
    for (name, (file, digest)) in after {
        let Some((old, old_digest)) = before.get(name) else {
            if !changes.files.get(file).is_some_and(|changes| changes.created) {
                return Err(format!("the file of {name} was made and is not named"));
            }
            continue;
        };
        // The server doesn't write a new column's default into existing rows. Only the catalog makes
        // them read differently.
        let has_column =
            changes.files.get(&after["pg_attribute"].0).is_some_and(|changes| changes.inserted > 0);
        if digest == old_digest || (has_column && name == "made") {
            continue;
        }
        if ![file, old].iter().any(|file| changes.files.contains_key(file) || shared.contains(file)) {
            return Err(format!("{name} has changed and is not named"));
        }
        let sequence = changes.files.get(file).is_some_and(|changes| changes.sequence);
        if !changes.committed && file.database != 0 && !sequence {
            return Err(format!("{name} has changed and nothing is committed"));
        }
    }
    Ok(())
}

fn check_expected(
    expected: &Expected,
    changes: &Changes,
    shared: &BTreeSet<RelationFile>,
    known: &HashMap<RelationFile, String>,
) -> Result<(), String> {
    let name = |file| known.get(file).map_or("a new file", String::as_str);
    let holds = match expected {
        Expected::Exactly(wanted, lasts) => {
            let named: BTreeSet<_> =
                changes.files.keys().chain(shared).map(name).map(str::to_owned).collect();
            named == *wanted && changes.committed == *lasts && changes.doubt.is_none()
        }
        Expected::Anything => changes.doubt.is_none(),
        Expected::Doubt => changes.doubt.is_some(),
    };
    let named = || {
        changes.files.iter().map(|(file, changes)| format!("{} {changes:?}", name(file))).collect::<Vec<_>>()
    };
    holds.then_some(()).ok_or_else(|| {
        format!(
            "{expected:?}, but {:#?}, shared {:?}, committed {}, doubt {:?}",
            named(),
            shared.iter().map(name).collect::<Vec<_>>(),
            changes.committed,
            changes.doubt
        )
    })
}

fn check_all(major: u32) {
    for variant in some_of(variants()) {
        check(major, variant);
    }
}

#[test]
fn every_change_is_named_on_13() {
    check_all(13);
}

#[test]
fn every_change_is_named_on_15() {
    check_all(15);
}

#[test]
fn every_change_is_named_on_18() {
    check_all(18);
}

/// A crash loses statistics, but not the WAL.
#[test]
fn changes_before_a_crash_are_named() {
    for major in majors() {
        let mut fixture = Fixture::new(major, variants()[1]);
        let (oid, folder) = (fixture.oid("app"), fixture.started.server.run().socket_directory());
        let mut session = fixture.session("app");
        let known = file_names(&mut session, oid);
        session.query("SET synchronous_commit = on; INSERT INTO item VALUES (-1, 'kept')").unwrap();
        session.query("BEGIN; SET synchronous_commit = on; DELETE FROM long WHERE id = 3").unwrap();
        flush(&mut fixture.admin);
        let pid = session.query("SELECT pg_backend_pid()").unwrap()[0][0].as_ref().unwrap().parse().unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        wait_until("the server to notice the crash", || fixture.admin.query("SELECT 1").is_err());
        let mut recovered = None;
        wait_until("the server to recover", || {
            recovered = AdminConnection::open(&folder, "postgres", "postgres", WAIT_TIMEOUT).ok();
            recovered.is_some()
        });
        fixture.admin = recovered.unwrap();
        fixture.advance();
        let changes = fixture.reader.take(oid);
        let named: BTreeSet<_> = changes.files.keys().map(|file| known[file].as_str()).collect();
        assert_eq!(named, BTreeSet::from(["item", "long", "long~toast"]), "{major}");
        assert!(changes.committed && changes.doubt.is_none());
    }
}

/// Numbers of rows that were inserted, updated and deleted.
type Totals = [u64; 3];

/// Makes random writes in `database` until `stop` is set. Returns the numbers of changed rows, including those
/// that were rolled back.
fn write_at_random(mut session: AdminConnection, seed: u64, stop: &AtomicBool) -> Totals {
    let (mut totals, mut random, mut next) = (Totals::default(), seed, seed << 32);
    while !stop.load(Ordering::Relaxed) {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (kind, rows) = ((random >> 33) % 4, (random >> 40) % 50 + 1);
        let end = if (random >> 50).is_multiple_of(4) { "ROLLBACK" } else { "COMMIT" };
        let range = format!("generate_series({next}::bigint, {}::bigint) i", next + rows - 1);
        let (statement, count) = match kind {
            0 | 1 => (format!("INSERT INTO load SELECT i, 'x' FROM {range}"), 0),
            2 => (
                format!(
                    "UPDATE load SET body = body || 'y' WHERE id IN (SELECT id FROM load WHERE owner = {seed} LIMIT {rows})"
                ),
                1,
            ),
            _ => (
                format!(
                    "DELETE FROM load WHERE id IN (SELECT id FROM load WHERE owner = {seed} LIMIT {rows})"
                ),
                2,
            ),
        };
        next += rows;
        let statement = statement.replace("SELECT i, 'x'", &format!("SELECT i, 'x', {seed}"));
        let counted = format!("WITH done AS ({statement} RETURNING 1) SELECT count(*) FROM done");
        session.query("BEGIN").unwrap();
        let done: u64 = session.query(&counted).unwrap()[0][0].as_ref().unwrap().parse().unwrap();
        session.query(end).unwrap();
        totals[count] += done;
    }
    totals
}

#[test]
fn concurrent_writes_are_counted_completely() {
    for major in majors() {
        let mut fixture = Fixture::new(major, variants()[1]);
        let databases = ["one", "two", "three"];
        for database in databases {
            fixture.admin.query(&format!("CREATE DATABASE {database}")).unwrap();
            fixture
                .session(database)
                .query("CREATE TABLE load (id bigint PRIMARY KEY, body text, owner int)")
                .unwrap();
        }
        let oids = databases.map(|database| fixture.oid(database));
        fixture.advance();
        let _ = oids.map(|oid| fixture.reader.take(oid));
        let stop = &AtomicBool::new(false);
        let mut found = [Totals::default(); 3];
        let done = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..6)
                .map(|seed| (usize::try_from(seed).unwrap() % 3, seed + 1))
                .map(|(at, seed)| (at, fixture.session(databases[at]), seed))
                .map(|(at, session, seed)| (at, scope.spawn(move || write_at_random(session, seed, stop))))
                .collect();
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(2) {
                fixture.advance();
                for (oid, found) in oids.iter().zip(&mut found) {
                    add(found, &fixture.reader.take(*oid));
                }
            }
            stop.store(true, Ordering::Relaxed);
            let mut done = [Totals::default(); 3];
            for (at, writer) in writers {
                let totals = writer.join().unwrap();
                done[at].iter_mut().zip(totals).for_each(|(all, more)| *all += more);
            }
            done
        });
        fixture.advance();
        for (oid, found) in oids.iter().zip(&mut found) {
            add(found, &fixture.reader.take(*oid));
        }
        assert_eq!(found, done, "{major}");
        assert!(done.iter().flatten().all(|rows| *rows > 0), "hardly anything was done: {done:?}");
    }
}

fn add(totals: &mut Totals, changes: &Changes) {
    for file in changes.files.values() {
        let rows = [file.inserted, file.updated, file.deleted];
        totals.iter_mut().zip(rows).for_each(|(all, more)| *all += more);
    }
}
