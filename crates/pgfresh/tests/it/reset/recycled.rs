//! Tests recycling: after any sessions, the database that comes back equals an unused database.

use std::time::Duration;

use lease::{Backend, Seat};
use proptest::prelude::*;
use template::ServerOptions;

use crate::common::depth;
use crate::common::digests::{DigestFixture, in_place};
use crate::common::leases::{LeaseFixture, params};
use crate::common::wait_until;

/// Template with all kinds of objects that a reset must handle.
const SETUP: &str = include_str!("recycled_template.sql");
/// Statements for sessions, one in each line. `{n}` stands for a small number.
const STATEMENTS: &str = include_str!("recycled_statements.sql");

fn make_fixture() -> DigestFixture {
    fixture_with(|options, setup| LeaseFixture::new(options, setup, Duration::from_mins(10), false))
}

/// Makes a fixture whose reset plan an earlier server has stored, and whose copies are file copies.
/// Unlogged tables prevent both.
fn make_noted_fixture() -> DigestFixture {
    fixture_with(|options, setup| {
        let client = |earlier: &LeaseFixture| earlier.note(&params("postgres"));
        LeaseFixture::noted(options, &setup.replace("UNLOGGED ", ""), None, Duration::from_mins(10), client)
    })
}

fn fixture_with(open: impl Fn(ServerOptions, &str) -> LeaseFixture) -> DigestFixture {
    let mut fixture = untouched_fixture_with(open);
    fixture.never_used = fixture.digest("never_used");
    fixture
}

/// Makes a fixture that hasn't had clients yet.
fn untouched_fixture_with(open: impl Fn(ServerOptions, &str) -> LeaseFixture) -> DigestFixture {
    let settings = vec![("max_prepared_transactions".to_owned(), "8".to_owned())];
    let options = ServerOptions { settings, ..ServerOptions::default() };
    let server = open(options, &format!("CREATE ROLE guest LOGIN; {SETUP}"));
    DigestFixture::of(server)
}

/// Number of tables that take so long to read that a client connects before pgfresh has read them all.
const MANY: usize = 800;

fn many_tables() -> String {
    let table = |table| format!("CREATE TABLE t{table} AS SELECT 1 AS id");
    (1..=MANY).map(table).collect::<Vec<_>>().join(";")
}

/// How a session ends.
#[derive(Debug, Clone, Copy)]
enum End {
    /// The session is idle when it ends, and its backend returns to the pool.
    Given,
    /// The backend closes in any state.
    Closed,
}

/// Runs the sessions, resets the database, and compares it with an unused database.
fn check(
    fixture: &DigestFixture,
    name: &str,
    sessions: &[(Vec<String>, End, bool)],
) -> Result<(), TestCaseError> {
    play(fixture, name, sessions)?;
    let digest = fixture.digest(name);
    let difference = fixture.never_used.difference(&digest);
    prop_assert_eq!(difference, None, "status: {:?}", fixture.server.leases.status().dropped);
    Ok(())
}

/// Runs the sessions and resets the database.
fn play(
    fixture: &DigestFixture,
    name: &str,
    sessions: &[(Vec<String>, End, bool)],
) -> Result<(), TestCaseError> {
    for (statements, end, as_guest) in sessions {
        let user = if *as_guest { "guest" } else { "postgres" };
        let (mut session, startup_response, guard) = fixture.connect(name, user);
        for statement in statements {
            // Many statements fail on purpose. Their effects before the error count too.
            let _ = session.query(statement);
        }
        if matches!(end, End::Given) {
            let _ = session.query("ROLLBACK");
            let _ = session.query("DISCARD ALL");
            if let Ok(stream) = session.release() {
                guard.give_back(Backend { stream, startup_response, seat: Seat::default() });
            }
        }
    }
    fixture.server.leases.reset(name, false).map_err(|error| TestCaseError::fail(error.to_string()))
}

/// Returns the statements, and whether recycling must be able to undo them, which is the case
/// below a "-- cheap" line.
fn statements() -> Vec<(&'static str, bool)> {
    let mut cheap = true;
    let mut all = Vec::new();
    for line in STATEMENTS.lines().filter(|line| !line.is_empty()) {
        match line.strip_prefix("-- ") {
            Some(comment) => cheap = comment.starts_with("cheap"),
            None => all.push((line, cheap)),
        }
    }
    all
}

/// Selects a statement. Cheap statements are selected `cheap_ones` times as often as expensive ones.
fn statement(cheap_ones: u32) -> impl Strategy<Value = String> {
    let (cheap, dear): (Vec<_>, Vec<_>) = statements().into_iter().partition(|(_, cheap)| *cheap);
    let line = prop_oneof![cheap_ones => prop::sample::select(cheap), 1 => prop::sample::select(dear)];
    (line, 1..12u32).prop_map(|((line, _), n)| line.replace("{n}", &n.to_string()))
}

fn sessions(cheap_ones: u32, most: usize) -> impl Strategy<Value = Vec<(Vec<String>, End, bool)>> {
    let end = prop_oneof![3 => Just(End::Given), 1 => Just(End::Closed)];
    prop::collection::vec(
        (prop::collection::vec(statement(cheap_ones), 0..most), end, prop::bool::weighted(0.1)),
        1..3,
    )
}

/// Returns the number of generated cases.
fn cases() -> u32 {
    depth::rounds(50)
}

#[test]
fn recycled_databases_equal_unused_ones() {
    comes_back_as_never_used(make_fixture());
}

#[test]
fn recycled_databases_equal_unused_ones_by_note() {
    comes_back_as_never_used(make_noted_fixture());
}

fn comes_back_as_never_used(fixture: DigestFixture) {
    let config = ProptestConfig {
        cases: cases(),
        max_shrink_iters: 300,
        failure_persistence: None,
        ..Default::default()
    };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let result = runner.run(&sessions(15, 8), |sessions| check(&fixture, "case", &sessions));
    let status = fixture.server.leases.status();
    println!("recycled {} of them, dropped: {:?}", status.recycled.0, status.dropped);
    drop(fixture);
    result.unwrap();
    assert!(status.recycled.0 * 5 > u64::from(cases()), "hardly anything was recycled: {status:?}");
}

/// The first client connects while pgfresh makes the first copies, and reads the template in one of them.
#[test]
fn changes_of_the_first_client_are_undone() {
    let config = ProptestConfig {
        cases: depth::rounds(8),
        max_shrink_iters: 0,
        failure_persistence: None,
        ..Default::default()
    };
    // With these tables, a copy takes so long that the client connects before the copy is complete.
    let many: Vec<_> = (0..300).map(|table| format!("CREATE TABLE many_{table} (id int)")).collect();
    let many = many.join(";");
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let result = runner.run(&(sessions(1, 3), any::<bool>()), |(sessions, waits)| {
        let fixture = untouched_fixture_with(|options, setup| {
            // With unlogged tables, pgfresh would also read the first copy.
            let setup = format!("{}; {many}", setup.replace("UNLOGGED ", ""));
            LeaseFixture::new(options, &setup, Duration::from_mins(10), false)
        });
        if waits {
            wait_until("a ready database", || fixture.server.leases.status().ready[0].1 > 0);
        }
        play(&fixture, "first", &sessions)?;
        let (first, never_used) = (fixture.digest("first"), fixture.digest("never_used"));
        prop_assert_eq!(never_used.difference(&first), None);
        Ok(())
    });
    result.unwrap();
}

/// A superuser's changes that aren't visible in the latest WAL. They move catalogs to new files, use other
/// relations' files, change values that pgfresh compares separately, make rows seem old, and define functions
/// that read hidden values.
const HIDDEN: [&[&str]; 9] = [
    &["VACUUM FULL pg_description", "COMMENT ON TABLE note IS 'hidden'"],
    &["SET allow_system_table_mods = on", "TRUNCATE pg_description"],
    &["VACUUM FULL pg_statistic", "ANALYZE country"],
    &["CLUSTER pg_depend USING pg_depend_depender_index", "CREATE TABLE hidden (id int)"],
    &[
        "SET allow_system_table_mods = on",
        "UPDATE pg_class c SET relfilenode = d.relfilenode FROM pg_class d WHERE c.oid IN ('base'::regclass, 'note'::regclass) \
         AND d.oid IN ('base'::regclass, 'note'::regclass) AND c.oid <> d.oid",
    ],
    &[
        "SET allow_system_table_mods = on",
        "UPDATE pg_class c SET relfilenode = d.relfilenode FROM pg_class d WHERE c.oid IN ('city'::regclass, 'tree'::regclass) \
         AND d.oid IN ('city'::regclass, 'tree'::regclass) AND c.oid <> d.oid",
    ],
    &[
        "SET allow_system_table_mods = on",
        "UPDATE pg_class SET relkind = 'r' WHERE oid = 'pg_toast.pg_toast_2618'::regclass",
        "UPDATE pg_toast.pg_toast_2618 SET chunk_data = overlay(chunk_data PLACING '\\x00' FROM 20) \
         WHERE ctid = (SELECT min(ctid) FROM pg_toast.pg_toast_2618)",
        "UPDATE pg_class SET relkind = 't' WHERE relname = 'pg_toast_2618'",
    ],
    &[
        "CREATE EXTENSION pg_surgery",
        "BEGIN; TRUNCATE note; SELECT heap_force_freeze('pg_class', ARRAY[(SELECT ctid FROM pg_class WHERE relname = 'note')]); COMMIT",
        "DROP EXTENSION pg_surgery",
    ],
    &[
        "DO $$ BEGIN EXECUTE format('CREATE OR REPLACE FUNCTION pg_catalog.age(xid) RETURNS int LANGUAGE sql STABLE \
       CALLED ON NULL INPUT AS ''SELECT CASE WHEN $1::text::int8 BETWEEN %s AND %s THEN 0 ELSE 1 END''', \
       (SELECT max(xmin::text::int8) + 1 FROM pg_class), pg_current_xact_id()::text::int8 - 1); END $$",
    ],
];

#[test]
fn hidden_changes_are_found() {
    for fixture in [make_fixture(), make_noted_fixture()] {
        expect_seen(&fixture);
    }
}

fn expect_seen(fixture: &DigestFixture) {
    for statements in HIDDEN {
        let lease = |done: &[&str]| {
            let done = done.iter().map(|statement| (*statement).to_owned()).collect();
            check(fixture, "hidden", &[(done, End::Closed, false)])
                .unwrap_or_else(|error| panic!("{statements:?}: {error}"));
        };
        lease(statements);
        // In a later lease, pgfresh might have wrong information about files.
        for later in ["INSERT INTO note VALUES (1, 'x')", "TRUNCATE base", "INSERT INTO note VALUES (2, 'x')"]
        {
            lease(&[later]);
        }
    }
}

/// The server parses statements on a stack, which here has the smallest possible size.
#[test]
fn thousands_of_sequences_are_recycled() {
    for paranoid in [false, true] {
        let settings = vec![("max_stack_depth".to_owned(), "100kB".to_owned())];
        let options = ServerOptions { settings, ..ServerOptions::default() };
        let tables: Vec<_> = (1..=1500).map(|table| format!("CREATE TABLE t{table} (id serial)")).collect();
        let server =
            LeaseFixture::new(in_place(options), &tables.join(";"), Duration::from_mins(10), paranoid);
        let fixture = DigestFixture::of(server);
        let (mut session, _, guard) = fixture.connect("many", "postgres");
        session.query("INSERT INTO t7 DEFAULT VALUES").unwrap();
        drop((session, guard));
        fixture.server.leases.reset("many", true).unwrap();
        assert_eq!(fixture.recycled(), 1, "{:?}", fixture.server.leases.status().dropped);
    }
}

/// The server's log shows how often pgfresh reads the template. The first server stores the result in the cache. A
/// template outside the cache might have different content each time, like the row here, so each server reads it.
#[test]
fn servers_on_one_template_read_it_once() {
    let sql = "CREATE TABLE base (id int); INSERT INTO base VALUES (1); CREATE TABLE note (id int)";
    let setup = "psql -Atqc \"INSERT INTO base VALUES (floor(extract(epoch FROM clock_timestamp()) * 1000000) % 1000000000)\"";
    for (setup, reads) in [(None, 0), (Some(setup), 1)] {
        let settings = vec![("log_min_duration_statement".to_owned(), "0".to_owned())];
        let options = ServerOptions { settings, ..ServerOptions::default() };
        let server = LeaseFixture::noted(in_place(options), sql, setup, Duration::from_mins(10), |_| ());
        let fixture = DigestFixture::of(server);
        let rows = || {
            let (mut session, ..) = fixture.connect("a", "postgres");
            session.query("SELECT (SELECT sum(id) FROM base), (SELECT count(*) FROM note)").unwrap()
        };
        let before = rows();
        let (mut session, ..) = fixture.connect("a", "postgres");
        session.query("UPDATE base SET id = 0; INSERT INTO note VALUES (2)").unwrap();
        drop(session);
        fixture.server.leases.reset("a", true).unwrap();
        assert_eq!(rows(), before);
        assert_eq!(fixture.recycled(), 1, "{:?}", fixture.server.leases.status().dropped);
        let log = std::fs::read_to_string(fixture.server.started.server.run().log()).unwrap();
        assert_eq!(log.matches(" TO STDOUT (FORMAT binary)").count(), reads, "{log}");
    }
}

/// pgfresh reads the template after the first client has written, and must not mistake the client's
/// rows for the template's.
#[test]
fn changes_before_the_template_is_read_are_found() {
    let setup = format!("{}; COMMENT ON TABLE t1 IS 'as in the template'", many_tables());
    let fixture = DigestFixture::untouched(ServerOptions::default(), &setup);
    // From now on, pgfresh makes the second copy and reads the template in it.
    wait_until("a ready database", || fixture.server.leases.status().ready[0].1 > 0);
    let (mut session, _, guard) = fixture.connect("first", "postgres");
    // The number of rows doesn't change.
    session.query("COMMENT ON TABLE t1 IS 'changed'").unwrap();
    drop((session, guard));
    fixture.server.leases.reset("first", true).unwrap();
    let (mut session, ..) = fixture.connect("first", "postgres");
    let comment = session.query("SELECT obj_description('t1'::regclass)").unwrap();
    assert_eq!(comment, [[Some("as in the template".to_owned())]]);
}

/// A superuser bypasses the gateway and connects to the copy that pgfresh uses to read the template.
#[test]
fn copies_changed_during_reading_are_rejected() {
    let fixture = DigestFixture::untouched(ServerOptions::default(), &many_tables());
    wait_until("a ready database", || fixture.server.leases.status().ready[0].1 > 0);
    let mut hostile = None;
    wait_until("the second copy", || {
        hostile = fixture.server.started.server.session("pgfresh_preparing_2").ok();
        hostile.is_some()
    });
    hostile.unwrap().query("UPDATE t800 SET id = 666").unwrap();
    for round in 0..4 {
        let (mut session, _, guard) = fixture.connect("a", "postgres");
        let rows = session.query("SELECT id FROM t800").unwrap();
        assert_eq!(rows, [[Some("1".to_owned())]], "lease {round}");
        session.query("UPDATE t800 SET id = 2").unwrap();
        drop((session, guard));
        fixture.server.leases.reset("a", true).unwrap();
    }
}

/// A setting determines how many digits the server prints, and the template might have changed it.
#[test]
fn no_setting_rounds_planner_statistics() {
    let setup = "CREATE TABLE u AS SELECT generate_series(1, 1234) AS id; ANALYZE; \
        ALTER DATABASE app SET extra_float_digits = -15";
    let fixture = DigestFixture::untouched(ServerOptions::default(), setup);
    for _ in 0..3 {
        let (mut session, _, guard) = fixture.connect("a", "postgres");
        let estimate = "SELECT reltuples::int FROM pg_class WHERE relname = 'u'";
        assert_eq!(session.query(estimate).unwrap(), [[Some("1234".to_owned())]]);
        session.query("TRUNCATE u").unwrap();
        drop((session, guard));
        fixture.server.leases.reset("a", true).unwrap();
    }
}

/// The server's log shows that the client receives its response before pgfresh has read all tables, and that the
/// reset waits until pgfresh has.
#[test]
fn the_first_client_waits_for_no_reset_preparation() {
    let settings = vec![("log_min_duration_statement".to_owned(), "0".to_owned())];
    let options = ServerOptions { settings, ..ServerOptions::default() };
    let fixture = DigestFixture::untouched(options, &many_tables());
    let read = || {
        let log = std::fs::read_to_string(fixture.server.started.server.run().log()).unwrap();
        log.matches(" TO STDOUT (FORMAT binary)").count()
    };
    let (mut session, _, guard) = fixture.connect("first", "postgres");
    session.query("INSERT INTO t7 VALUES (2)").unwrap();
    assert!(read() < MANY);
    drop((session, guard));
    fixture.server.leases.reset("first", true).unwrap();
    assert_eq!(read(), MANY);
    assert_eq!(fixture.recycled(), 1, "{:?}", fixture.server.leases.status().dropped);
    let (mut session, ..) = fixture.connect("first", "postgres");
    assert_eq!(session.query("SELECT count(*) FROM t7").unwrap(), [[Some("1".to_owned())]]);
}

#[test]
fn each_single_statement_is_undone() {
    let fixture = make_fixture();
    for (line, cheap) in depth::some_of(statements()) {
        let statement = line.replace("{n}", "3");
        for end in [End::Given, End::Closed] {
            let before = fixture.recycled();
            check(&fixture, "alone", &[(vec![statement.clone()], end, false)])
                .unwrap_or_else(|error| panic!("{statement} ({end:?}): {error}"));
            if cheap {
                let why = fixture.server.leases.status().dropped;
                assert!(fixture.recycled() > before, "not recycled after {statement} ({end:?}): {why:?}");
            }
        }
    }
}
