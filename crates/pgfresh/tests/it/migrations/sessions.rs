//! Tests that the laboratory can repeat sessions with any protocol, concurrent sessions, and
//! sessions that failed or hung.

use std::time::Duration;

use migrations::Observations;
use pgwire::encode;

use super::script::{Script, bind, execute, parse, sync};
use super::summary::{Bench, facts};
use crate::common::on_every_major;

const SCHEMA: &str = "
    CREATE TABLE orders (id int PRIMARY KEY, status text);
    INSERT INTO orders SELECT n, 'new' FROM generate_series(1, 1000) n;
    CREATE TABLE items (id int, order_id int);
    CREATE PROCEDURE fill() LANGUAGE plpgsql AS $$ BEGIN
        UPDATE orders SET status = 'old'; COMMIT; LOCK items IN EXCLUSIVE MODE; COMMIT; END $$;";

on_every_major! {
    pipelines_and_portals_are_repeated
    savepoints_release_their_locks
    failures_are_repeated_or_kept
    failing_statements_show_their_locks
    deferred_triggers_show_their_locks
    hanging_statements_show_their_locks
    sessions_that_wait_for_each_other_end
    statements_outside_transactions_show_all_locks
    databases_are_copies_or_created
    one_query_is_one_transaction
    differences_are_said
    settings_do_not_disturb_questions
    ended_and_refused_sessions_are_left_out
}

/// Repeats a script. Returns a line for each statement.
fn repeat(major: u32, script: &Script) -> (Vec<String>, Observations) {
    let mut bench = Bench::new(major, SCHEMA);
    let observations = bench.laboratory.observe(&script.sessions).unwrap();
    bench.laboratory.stop().unwrap();
    let line = |one: &migrations::ObservedStatement| {
        let tag = match (&one.tag, &one.error) {
            (Some(tag), _) => tag.clone(),
            (None, Some(error)) => error.sqlstate.clone(),
            (None, None) => "?".to_owned(),
        };
        format!("{} {tag} | {}", one.transaction, facts(one)).trim_end_matches(" | ").to_owned()
    };
    (observations.statements.iter().map(line).collect(), observations)
}

/// Returns a session with named and unnamed statements, a portal that is executed in parts, and
/// COPY in both protocols.
fn pipelines() -> Script {
    let mut script = Script::new(&["app"]);
    let alter = "ALTER TABLE items ADD COLUMN note text";
    script.add(0, &[parse("s1", alter), encode(b'D', b"Ss1\0"), sync()], (&[], "", b'I'));
    script.add(0, &[bind("", "s1", &[]), execute("", 0), sync()], (&["ALTER TABLE"], "", b'I'));
    let pipeline = [
        parse("", "BEGIN"),
        bind("", "", &[]),
        execute("", 0),
        parse("", "UPDATE orders SET status = $1 WHERE id = $2::int"),
        bind("", "", &["x", "7"]),
        execute("", 0),
        parse("", "CREATE INDEX ON orders (status)"),
        bind("", "", &[]),
        execute("", 0),
        sync(),
    ];
    script.add(0, &pipeline, (&["BEGIN", "UPDATE 1", "CREATE INDEX"], "", b'T'));
    // Between two requests, the client keeps its unnamed statement and portal.
    script.add(
        0,
        &[parse("", "SELECT * FROM orders"), bind("", "", &[]), execute("", 10), sync()],
        (&[], "", b'T'),
    );
    script.add(0, &[execute("", 0), sync()], (&["SELECT 990"], "", b'T'));
    script.query(0, "COMMIT", (&["COMMIT"], "", b'I'));
    let two = [
        parse("", "LOCK TABLE items IN SHARE MODE"),
        bind("", "", &[]),
        execute("", 0),
        parse("", "TRUNCATE items"),
        bind("", "", &[]),
        execute("", 0),
        sync(),
    ];
    script.add(0, &two, (&["LOCK TABLE", "TRUNCATE TABLE"], "", b'I'));
    let rows = [encode(b'd', b"1\t2\n"), encode(b'd', b"3\t4\n"), encode(b'c', b"")].concat();
    let copy = "COPY items (id, order_id) FROM STDIN";
    script.add(0, &[pgwire::query(copy.as_bytes()), rows.clone()], (&["COPY 2"], "", b'I'));
    let messages = [parse("", copy), bind("", "", &[]), execute("", 0), sync(), rows, sync()];
    script.add(0, &messages, (&["COPY 2"], "", b'I'));
    script.query(0, "SELECT count(*) FROM items", (&["SELECT 1"], "", b'I'));
    script
}

fn pipelines_and_portals_are_repeated(major: u32) {
    let (lines, observations) = repeat(major, &pipelines());
    assert_eq!(observations.unseen, Vec::<String>::new());
    assert_eq!(
        lines,
        [
            "0 ALTER TABLE | ACCESS EXCLUSIVE items",
            "1 BEGIN",
            "1 UPDATE 1",
            "1 CREATE INDEX | SHARE orders; scans orders: 1, 1001",
            "1 SELECT 990 | scans orders: 1, 1000",
            "1 COMMIT",
            "2 LOCK TABLE | SHARE items",
            "2 TRUNCATE TABLE | ACCESS EXCLUSIVE items; empties items",
            "3 COPY 2",
            "4 COPY 2",
            "5 SELECT 1 | scans items: 1, 4",
        ]
    );
    let update = &observations.statements[2];
    assert_eq!(update.sql, "UPDATE orders SET status = $1 WHERE id = $2::int");
    let values: Vec<_> = update.parameters.iter().map(|one| one.value.clone().unwrap()).collect();
    assert_eq!(values, [b"x", b"7"]);
    assert!((update.seconds - 0.01 / 3.0).abs() < 1e-6 && (update.held_seconds - 0.04).abs() < 1e-6);
    let rest = &observations.statements[4];
    assert!((rest.seconds - 0.02).abs() < 1e-6, "{rest:?}");
}

fn savepoints_release_their_locks(major: u32) {
    let mut script = Script::new(&["app"]);
    for (sql, tag) in [
        ("BEGIN", "BEGIN"),
        ("LOCK TABLE orders IN SHARE MODE", "LOCK TABLE"),
        ("SAVEPOINT a", "SAVEPOINT"),
        ("LOCK TABLE items IN EXCLUSIVE MODE", "LOCK TABLE"),
        ("LOCK TABLE orders IN SHARE MODE", "LOCK TABLE"),
        ("ROLLBACK TO a", "ROLLBACK"),
        ("LOCK TABLE items IN EXCLUSIVE MODE", "LOCK TABLE"),
    ] {
        script.query(0, sql, (&[tag], "", b'T'));
    }
    script.query(0, "SELECT missing", (&[], "42703", b'E'));
    script.query(0, "ROLLBACK TO a", (&["ROLLBACK"], "", b'T'));
    script.query(0, "ALTER TABLE orders ADD x int", (&["ALTER TABLE"], "", b'T'));
    script.query(0, "COMMIT", (&["COMMIT"], "", b'I'));
    let (lines, observations) = repeat(major, &script);
    assert_eq!(
        lines,
        [
            "0 BEGIN",
            "0 LOCK TABLE | SHARE orders",
            "0 SAVEPOINT",
            "0 LOCK TABLE | EXCLUSIVE items",
            "0 LOCK TABLE",
            "0 ROLLBACK",
            "0 LOCK TABLE | EXCLUSIVE items",
            "0 42703",
            "0 ROLLBACK",
            "0 ALTER TABLE | ACCESS EXCLUSIVE orders",
            "0 COMMIT",
        ]
    );
    assert_eq!(observations.unseen, Vec::<String>::new());
    let held: Vec<_> =
        [1, 3, 6, 9].map(|at: usize| (observations.statements[at].held_seconds * 100.0).round()).to_vec();
    assert_eq!(held, [10.0, 3.0, 3.0, 2.0]);
}

fn failures_are_repeated_or_kept(major: u32) {
    let mut script = Script::new(&["app"]);
    script.query(0, "ALTER TABLE items ADD a int; SELEC 2", (&[], "42601", b'I'));
    script.query(
        0,
        "ALTER TABLE items ADD a int; ALTER TABLE items ADD a int; SELECT 1",
        (&["ALTER TABLE"], "42701", b'I'),
    );
    script.query(0, "VACUUM items; VACUUM orders", (&[], "25001", b'I'));
    // The lock wasn't free at first, as for a tool that retries.
    script.query(0, "BEGIN", (&["BEGIN"], "", b'T'));
    script.query(0, "ALTER TABLE items ADD a int", (&[], "55P03", b'E'));
    script.query(0, "ROLLBACK", (&["ROLLBACK"], "", b'I'));
    script.query(0, "ALTER TABLE items ADD a int", (&["ALTER TABLE"], "", b'I'));
    script.add(0, &[parse("", "SELECT nothing"), encode(b'D', b"S\0"), sync()], (&[], "42703", b'I'));
    let (lines, observations) = repeat(major, &script);
    assert_eq!(observations.unseen, Vec::<String>::new());
    assert_eq!(
        lines,
        [
            "0 42601",
            "1 ALTER TABLE | ACCESS EXCLUSIVE items",
            "1 42701",
            "2 25001",
            "3 BEGIN",
            "3 55P03",
            "3 ROLLBACK",
            "4 ALTER TABLE | ACCESS EXCLUSIVE items",
            "5 42703",
        ]
    );
}

fn failing_statements_show_their_locks(major: u32) {
    let mut script = Script::new(&["app"]);
    script.query(0, "ALTER TABLE orders ADD CHECK (id < 5)", (&[], "23514", b'I'));
    script.query(0, "INSERT INTO items VALUES (1, 5000)", (&["INSERT 0 1"], "", b'I'));
    script.query(0, "BEGIN", (&["BEGIN"], "", b'T'));
    script.query(0, "LOCK TABLE orders IN SHARE MODE", (&["LOCK TABLE"], "", b'T'));
    script.query(0, "SAVEPOINT a", (&["SAVEPOINT"], "", b'T'));
    let foreign_key = "ALTER TABLE items ADD FOREIGN KEY (order_id) REFERENCES orders";
    script.query(0, foreign_key, (&[], "23503", b'E'));
    script.query(0, "ROLLBACK TO a", (&["ROLLBACK"], "", b'T'));
    script.query(0, "SELECT id FROM items, missing", (&[], "42P01", b'E'));
    script.query(0, "COMMIT", (&["ROLLBACK"], "", b'I'));
    script.query(0, foreign_key, (&[], "23503", b'I'));
    let block = "DO $$ BEGIN LOCK items IN EXCLUSIVE MODE; TRUNCATE orders; RAISE 'no'; END $$";
    script.query(0, block, (&[], "P0001", b'I'));
    script.query(0, "ALTER TABLE items ADD x int", (&["ALTER TABLE"], "", b'I'));
    let (lines, observations) = repeat(major, &script);
    // While SHARE is held, no other session can hold the table in a mode that SHARE ROW EXCLUSIVE waits for.
    let [hidden] = &observations.unseen[..] else { panic!("{:?}", observations.unseen) };
    assert!(
        hidden.starts_with("some locks of \"ALTER TABLE items ADD FOREIGN KEY")
            && hidden.ends_with("which fails")
    );
    assert_eq!(
        lines,
        [
            "0 23514 | ACCESS EXCLUSIVE orders",
            "1 INSERT 0 1",
            "2 BEGIN",
            "2 LOCK TABLE | SHARE orders",
            "2 SAVEPOINT",
            "2 23503 | SHARE ROW EXCLUSIVE items",
            "2 ROLLBACK",
            "2 42P01",
            "2 ROLLBACK",
            "3 23503 | SHARE ROW EXCLUSIVE items; SHARE ROW EXCLUSIVE orders",
            "4 P0001 | EXCLUSIVE items; ACCESS EXCLUSIVE orders",
            "5 ALTER TABLE | ACCESS EXCLUSIVE items",
        ]
    );
}

/// Trigger that runs at the end of the transaction, and locks another table.
const DEFERRED: &str = "
    CREATE FUNCTION close() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN LOCK items IN EXCLUSIVE MODE; PERFORM nextval('runs'); RETURN NULL; END $$;
    CREATE SEQUENCE runs;
    CREATE CONSTRAINT TRIGGER t AFTER UPDATE ON orders DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION close();";

fn deferred_triggers_show_their_locks(major: u32) {
    let mut script = Script::new(&["app"]);
    script.query(0, DEFERRED, (&["CREATE FUNCTION", "CREATE SEQUENCE", "CREATE TRIGGER"], "", b'I'));
    let update = "UPDATE orders SET status = 'x' WHERE id = 7";
    script.query(0, "BEGIN", (&["BEGIN"], "", b'T'));
    script.query(0, update, (&["UPDATE 1"], "", b'T'));
    script.query(0, "ALTER TABLE items ADD x int", (&["ALTER TABLE"], "", b'T'));
    script.query(0, "ROLLBACK", (&["ROLLBACK"], "", b'I'));
    script.query(0, "BEGIN", (&["BEGIN"], "", b'T'));
    script.query(0, update, (&["UPDATE 1"], "", b'T'));
    script.query(0, "COMMIT", (&["COMMIT"], "", b'I'));
    script.query(0, update, (&["UPDATE 1"], "", b'I'));
    script.query(0, "ALTER TABLE orders ADD x int", (&["ALTER TABLE"], "", b'I'));
    let (lines, observations) = repeat(major, &script);
    assert_eq!(observations.unseen, Vec::<String>::new());
    assert_eq!(
        lines[3..],
        [
            "1 BEGIN",
            "1 UPDATE 1",
            "1 ALTER TABLE | ACCESS EXCLUSIVE items",
            "1 ROLLBACK",
            "2 BEGIN",
            "2 UPDATE 1",
            "2 COMMIT | EXCLUSIVE items",
            "3 UPDATE 1 | EXCLUSIVE items",
            "4 ALTER TABLE | ACCESS EXCLUSIVE orders",
        ]
    );
}

fn hanging_statements_show_their_locks(major: u32) {
    let mut script = Script::new(&["app", "app"]);
    script.query(0, "BEGIN", (&["BEGIN"], "", b'T'));
    script.query(0, "CREATE INDEX ON orders (status)", (&["CREATE INDEX"], "", b'T'));
    script.query(1, "SELECT 1", (&["SELECT 1"], "", b'I'));
    script.unanswered(1, "ALTER TABLE orders ALTER COLUMN id TYPE bigint");
    script.unanswered(0, "SELECT pg_sleep(0)");
    let (lines, observations) = repeat(major, &script);
    assert_eq!(
        lines,
        [
            "0 BEGIN",
            "0 CREATE INDEX | SHARE orders; scans orders: 1, 1000",
            "1 SELECT 1",
            "2 ? | ACCESS EXCLUSIVE orders; ACCESS EXCLUSIVE orders_pkey; rewrites orders; rewrites orders_pkey; \
             scans orders: 2, 2000",
            "0 ?",
        ]
    );
    let unfinished: Vec<_> = observations.statements.iter().map(|one| one.is_unfinished).collect();
    assert_eq!(unfinished, [false, false, false, true, true]);
    assert_eq!(observations.unseen, Vec::<String>::new());
}

fn sessions_that_wait_for_each_other_end(major: u32) {
    let mut script = Script::new(&["app", "app"]);
    for session in [0, 1] {
        script.query(session, "BEGIN", (&["BEGIN"], "", b'T'));
    }
    script.query(0, "LOCK TABLE orders", (&["LOCK TABLE"], "", b'T'));
    script.query(1, "LOCK TABLE items", (&["LOCK TABLE"], "", b'T'));
    // When the tool ran, the server resolved the deadlock.
    script.query(1, "LOCK TABLE orders", (&[], "40P01", b'E'));
    script.query(0, "LOCK TABLE items", (&["LOCK TABLE"], "", b'T'));
    script.query(1, "ROLLBACK", (&["ROLLBACK"], "", b'I'));
    script.query(1, "SELECT pg_advisory_lock(1)", (&["SELECT 1"], "", b'I'));
    // In the transcript, this lock can't have been free, so the laboratory must give up.
    script.query(0, "SELECT pg_advisory_lock(1)", (&["SELECT 1"], "", b'T'));
    script.query(0, "ALTER TABLE orders ADD x int", (&["ALTER TABLE"], "", b'T'));
    script.query(0, "COMMIT", (&["COMMIT"], "", b'I'));
    script.query(0, "ALTER TABLE items ADD x int", (&["ALTER TABLE"], "", b'I'));
    script.query(1, "SELECT pg_advisory_unlock(1)", (&["SELECT 1"], "", b'I'));
    let (lines, observations) = repeat(major, &script);
    assert_eq!(lines[4], "1 40P01");
    assert_eq!(lines[10], "0 COMMIT");
    assert_eq!(lines[11], "3 ALTER TABLE | ACCESS EXCLUSIVE items");
    assert_eq!(observations.unseen.len(), 2, "{:?}", observations.unseen);
    assert!(observations.unseen[0].starts_with("facts of \"SELECT pg_advisory_lock(1)\""));
}

fn statements_outside_transactions_show_all_locks(major: u32) {
    let mut script = Script::new(&["app"]);
    script.query(0, "SET lock_timeout = '20ms'", (&["SET"], "", b'I'));
    script.query(0, "CREATE INDEX CONCURRENTLY i ON orders (status)", (&["CREATE INDEX"], "", b'I'));
    script.query(0, "CALL fill()", (&["CALL"], "", b'I'));
    let messages = [parse("", "DROP INDEX CONCURRENTLY i"), bind("", "", &[]), execute("", 0), sync()];
    script.add(0, &messages, (&["DROP INDEX"], "", b'I'));
    script.query(0, "REINDEX TABLE CONCURRENTLY orders", (&["REINDEX"], "", b'I'));
    let (lines, observations) = repeat(major, &script);
    assert_eq!(observations.unseen, Vec::<String>::new());
    assert_eq!(
        lines,
        [
            "0 SET",
            "1 CREATE INDEX | SHARE UPDATE EXCLUSIVE orders; scans orders: 2, 2000",
            "2 CALL | EXCLUSIVE items; scans orders: 1, 1000",
            "3 DROP INDEX | SHARE UPDATE EXCLUSIVE i; SHARE UPDATE EXCLUSIVE orders",
            "4 REINDEX | SHARE UPDATE EXCLUSIVE orders; SHARE UPDATE EXCLUSIVE orders_pkey; rewrites orders_pkey; \
             scans orders: 2, 2000",
        ]
    );
    let outside: Vec<_> = observations.statements.iter().map(|one| one.is_outside_transactions).collect();
    assert_eq!(outside, [false, true, true, true, true]);
    let timeouts: Vec<_> = observations.statements.iter().map(|one| one.lock_timeout).collect();
    assert_eq!(timeouts[1..], [Some(Duration::from_millis(20)); 4]);
}

fn databases_are_copies_or_created(major: u32) {
    let mut script = Script::new(&["other", "postgres", "made", "other"]);
    script.query(0, "DROP TABLE items", (&["DROP TABLE"], "", b'I'));
    script.query(1, "CREATE DATABASE made", (&["CREATE DATABASE"], "", b'I'));
    script.begin(2);
    script.query(2, "CREATE TABLE orders (id int)", (&["CREATE TABLE"], "", b'I'));
    script.query(2, "ALTER TABLE orders ADD x int", (&["ALTER TABLE"], "", b'I'));
    script.query(1, "DROP DATABASE made", (&["DROP DATABASE"], "", b'I'));
    script.query(3, "ALTER TABLE orders RENAME TO sales", (&["ALTER TABLE"], "", b'I'));
    script.query(3, "ALTER TABLE sales ADD x int", (&["ALTER TABLE"], "", b'I'));
    let mut bench = Bench::new(major, SCHEMA);
    let observations = bench.laboratory.observe(&script.sessions).unwrap();
    assert_eq!(observations.unseen, Vec::<String>::new());
    assert_eq!(bench.laboratory.migrated_database(), "other");
    bench.laboratory.stop().unwrap();
    let lines: Vec<_> =
        observations.statements.iter().map(|one| format!("{} {}", one.database, facts(one))).collect();
    assert_eq!(
        lines,
        [
            "other ACCESS EXCLUSIVE items",
            "postgres ",
            "made ",
            "made ACCESS EXCLUSIVE orders",
            "postgres ",
            "other ACCESS EXCLUSIVE orders",
            "other ACCESS EXCLUSIVE sales",
        ]
    );
    let mut sizes: Vec<_> = observations
        .sizes
        .iter()
        .map(|size| format!("{} {} {} {}", size.database, size.relation.name, size.pages > 0, size.rows))
        .collect();
    sizes.sort();
    assert_eq!(
        sizes,
        [
            "other items false 0",
            "other orders true 1000",
            "other orders_pkey true 1000",
            "other orders_pkey true 1000",
            "other sales true 1000",
        ]
    );
}

fn one_query_is_one_transaction(major: u32) {
    let mut script = Script::new(&["app"]);
    let sql = "SET LOCAL lock_timeout = '3s'; ALTER TABLE orders ADD x int; SET LOCAL lock_timeout = 0; \
               ALTER TABLE items ADD x int";
    script.query(0, sql, (&["SET", "ALTER TABLE", "SET", "ALTER TABLE"], "", b'I'));
    let sql = "ALTER TABLE orders ADD y int; BEGIN; ALTER TABLE orders ADD z int; COMMIT; LOCK TABLE items";
    let tags = &["ALTER TABLE", "BEGIN", "ALTER TABLE", "COMMIT", "LOCK TABLE"];
    script.query(0, sql, (tags, "", b'I'));
    script.query(0, "SHOW lock_timeout", (&["SHOW"], "", b'I'));
    let (lines, observations) = repeat(major, &script);
    assert_eq!(observations.unseen, Vec::<String>::new());
    assert_eq!(
        lines,
        [
            "0 SET",
            "0 ALTER TABLE | ACCESS EXCLUSIVE orders",
            "0 SET",
            "0 ALTER TABLE | ACCESS EXCLUSIVE items",
            "1 ALTER TABLE | ACCESS EXCLUSIVE orders",
            "1 BEGIN",
            "1 ALTER TABLE",
            "1 COMMIT",
            "2 LOCK TABLE | ACCESS EXCLUSIVE items",
            "3 SHOW",
        ]
    );
    let timeouts: Vec<_> = observations.statements.iter().map(|one| one.lock_timeout).collect();
    assert_eq!(timeouts[1..5], [Some(Duration::from_secs(3)), Some(Duration::from_secs(3)), None, None]);
}

fn differences_are_said(major: u32) {
    let mut script = Script::new(&["app"]);
    script.query(0, "SELECT 1", (&["INSERT 0 1"], "", b'I'));
    script.query(0, "BEGIN", (&["BEGIN"], "", b'T'));
    script.query(0, "DROP TABLE missing", (&["DROP TABLE"], "", b'T'));
    script.query(0, "DROP TABLE items", (&["DROP TABLE"], "", b'T'));
    script.query(0, "COMMIT", (&["COMMIT"], "", b'I'));
    script.query(0, "SELECT 2", (&[], "22012", b'I'));
    let (lines, observations) = repeat(major, &script);
    assert_eq!(lines, ["0 INSERT 0 1", "1 BEGIN", "1 DROP TABLE", "1 DROP TABLE", "1 COMMIT", "2 22012"]);
    assert_eq!(
        observations.unseen,
        [
            "facts of \"SELECT 1\": the laboratory got \"SELECT 1\" instead of \"INSERT 0 1\"",
            "facts of \"DROP TABLE missing\": the laboratory got the error \"table \"missing\" does not exist\" instead of \
             success",
            "facts of \"SELECT 2\": the laboratory got \"SELECT 1\" instead of the error \"as in the script\"",
        ]
    );
}

/// Statements that change a session's settings, and others that the laboratory must observe nevertheless.
const ODD: &[(&str, &str)] = &[
    ("CREATE ROLE clerk LOGIN", "CREATE ROLE"),
    ("CREATE SCHEMA odd AUTHORIZATION clerk", "CREATE SCHEMA"),
    (
        "CREATE FUNCTION odd.current_setting(text) RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$",
        "CREATE FUNCTION",
    ),
    ("ALTER TABLE orders OWNER TO clerk", "ALTER TABLE"),
    ("GRANT CREATE ON SCHEMA public TO clerk", "GRANT"),
    ("SET default_transaction_read_only = on", "SET"),
    ("SELECT count(*) FROM orders", "SELECT 1"),
    ("RESET default_transaction_read_only", "RESET"),
    ("SET statement_timeout = '10min'", "SET"),
    ("LISTEN news", "LISTEN"),
    ("NOTIFY news, 'x'", "NOTIFY"),
    ("CREATE TEMP TABLE kept AS SELECT 1 AS a", "SELECT 1"),
    ("ALTER TABLE kept ADD b int", "ALTER TABLE"),
    ("PREPARE p AS SELECT count(*) FROM orders", "PREPARE"),
    ("EXECUTE p", "SELECT 1"),
    ("DISCARD ALL", "DISCARD ALL"),
    ("VACUUM items", "VACUUM"),
];

fn settings_do_not_disturb_questions(major: u32) {
    let mut script = Script::new(&["app", "app"]);
    script.sessions[1].parameters = vec![
        ("user".to_owned(), "clerk".to_owned()),
        ("options".to_owned(), "-c search_path=odd -c default_transaction_isolation=serializable".to_owned()),
        ("client_encoding".to_owned(), "LATIN1".to_owned()),
    ];
    for (sql, tag) in ODD {
        script.query(0, sql, (&[*tag], "", b'I'));
    }
    script.begin(1);
    script.add(1, &[pgwire::query(b"SELECT '\xe4'")], (&["SELECT 1"], "", b'I'));
    script.query(1, "BEGIN", (&["BEGIN"], "", b'T'));
    script.query(1, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", (&["SET"], "", b'T'));
    script.query(1, "LOCK TABLE public.orders IN SHARE MODE", (&["LOCK TABLE"], "", b'T'));
    script.query(
        1,
        "DECLARE c CURSOR WITH HOLD FOR SELECT * FROM public.orders",
        (&["DECLARE CURSOR"], "", b'T'),
    );
    script.add(1, &[execute("c", 5), sync()], (&[], "", b'T'));
    script.query(1, "FETCH 5 FROM c", (&["FETCH 5"], "", b'T'));
    script.query(1, "COMMIT", (&["COMMIT"], "", b'I'));
    script.query(1, "CREATE INDEX CONCURRENTLY ON public.orders (status)", (&["CREATE INDEX"], "", b'I'));
    let (lines, observations) = repeat(major, &script);
    assert_eq!(observations.unseen, Vec::<String>::new());
    assert_eq!(lines[6], "6 SELECT 1 | scans orders: 1, 1000");
    assert_eq!(lines[14], "14 SELECT 1 | scans orders: 1, 1000");
    assert_eq!(lines[12], "12 ALTER TABLE");
    assert_eq!(lines[16], "16 VACUUM | SHARE UPDATE EXCLUSIVE items");
    assert_eq!(
        lines[17..],
        [
            "17 SELECT 1",
            "18 BEGIN",
            "18 SET",
            "18 LOCK TABLE | SHARE orders",
            "18 DECLARE CURSOR",
            "18 ?",
            "18 FETCH 5",
            "18 COMMIT",
            "19 CREATE INDEX | SHARE UPDATE EXCLUSIVE orders; scans orders: 2, 2000",
        ]
    );
}

fn ended_and_refused_sessions_are_left_out(major: u32) {
    let mut script = Script::new(&["app", "app", "app"]);
    script.sessions[2].parameters = vec![("user".to_owned(), "stranger".to_owned())];
    script.query(2, "SELECT 1", (&["SELECT 1"], "", b'I'));
    script.query(0, "SELECT 1", (&["SELECT 1"], "", b'I'));
    let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() \
               AND backend_type = 'client backend'";
    script.query(1, sql, (&["SELECT 1"], "", b'I'));
    script.query(0, "SELECT 2", (&[], "57P01", b'I'));
    script.query(1, "ALTER TABLE items ADD x int", (&["ALTER TABLE"], "", b'I'));
    let (lines, observations) = repeat(major, &script);
    assert_eq!(observations.unseen.len(), 1, "{:?}", observations.unseen);
    assert!(observations.unseen[0].starts_with("session 3 in the database \"app\""));
    assert_eq!(lines[2..], ["2 57P01", "3 ALTER TABLE | ACCESS EXCLUSIVE items"]);
}
