//! Tests the comparison itself: it doesn't find differences between unused databases or between new connections, and
//! it finds each planted change.

use super::content::Content;
use super::generate::{queries, statements};
use super::parameters::Parameter;
use super::runner::{Runner, make_copy};
use super::session::{SeededNumbers, SessionState};
use super::{BRIEF, start};
use crate::common::connection::Connection;
use crate::common::depth::some_of;
use crate::common::gateway::Gateway;
use crate::common::majors;

/// Changes to a database, each with a word that its finding must contain.
const CHANGES: [(&str, &str); 37] = [
    ("INSERT INTO note VALUES (1, 'x')", "public.note differs"),
    ("UPDATE country SET name = 'cafÃ©' WHERE code = 'CI'", "public.country differs"),
    (
        "UPDATE every_type SET tstz = tstz + interval '1 microsecond' WHERE id = 1",
        "public.every_type differs",
    ),
    ("UPDATE every_type SET f8 = 0.3 WHERE id = 1", "public.every_type differs"),
    ("UPDATE every_type SET x = '<a>é</a>' WHERE id = 1", "public.every_type differs"),
    (
        "UPDATE every_type SET c = NULL WHERE id = 2; UPDATE every_type SET vc = NULL WHERE id = 2",
        "public.every_type differs",
    ),
    ("UPDATE priced SET amount = 100 WHERE id = 1", "public.priced differs"),
    ("DELETE FROM scratch_seed", "public.scratch_seed differs"),
    ("INSERT INTO information_schema.extra VALUES (1)", "information_schema.extra differs"),
    ("SELECT nextval('ticket')", "public.ticket differs"),
    ("SELECT setval('ticket', 250, true)", "public.ticket differs"),
    ("ALTER SEQUENCE ticket INCREMENT BY 2", "pg_catalog.pg_sequence differs"),
    ("COMMENT ON TABLE country IS 'x'", "pg_catalog.pg_description differs"),
    ("DELETE FROM pg_statistic WHERE starelid = 'country'::regclass", "pg_catalog.pg_statistic differs"),
    (
        "INSERT INTO note SELECT 1, 'x' FROM generate_series(1, 9); ANALYZE note; DELETE FROM note",
        "pg_catalog.pg_statistic differs",
    ),
    ("UPDATE pg_class SET reltuples = 7 WHERE relname = 'note'", "pg_catalog.pg_class differs"),
    ("UPDATE pg_class SET relallvisible = 7 WHERE relname = 'note'", "pg_catalog.pg_class differs"),
    ("CREATE TABLE more ()", "public.more is new"),
    ("DROP TABLE note", "public.note is missing"),
    ("GRANT SELECT ON note TO PUBLIC", "pg_catalog.pg_class differs"),
    ("ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO guest", "pg_catalog.pg_default_acl differs"),
    ("SELECT lo_create(0)", "pg_catalog.pg_largeobject_metadata differs"),
    ("SELECT lo_put(4711, 0, 'changed')", "pg_catalog.pg_largeobject differs"),
    ("CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p WITH (connect = false)", "subscriptions"),
    ("BEGIN; INSERT INTO note VALUES (1); PREPARE TRANSACTION 'p'", "prepared transactions"),
    (
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET work_mem = 999', current_database()); END $$",
        "settings of the database",
    ),
    (
        "DO $$ BEGIN EXECUTE format('ALTER ROLE guest IN DATABASE %I RESET ALL', current_database()); END $$",
        "settings of the database",
    ),
    (
        "DO $$ BEGIN EXECUTE format('COMMENT ON DATABASE %I IS %L', current_database(), 'x'); END $$",
        "comment on the database",
    ),
    (
        "DO $$ BEGIN EXECUTE format('GRANT CONNECT ON DATABASE %I TO guest', current_database()); END $$",
        "database: ",
    ),
    (
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I CONNECTION LIMIT 3', current_database()); END $$",
        "database: ",
    ),
    ("ALTER TABLE note OWNER TO guest", "dependencies on roles"),
    ("VACUUM large", "pg_catalog.pg_class differs"),
    ("CLUSTER country USING country_pkey", "public.country has its rows at other places"),
    ("UPDATE pg_proc SET prosrc = prosrc || ' ' WHERE proname = 'watch'", "pg_catalog.pg_proc differs"),
    ("ALTER TABLE scratch SET LOGGED", "pg_catalog.pg_class differs"),
    ("CREATE TABLE information_schema.more ()", "information_schema.more is new"),
    ("CREATE EXTENSION hstore", "pg_catalog.pg_extension differs"),
];

/// Actions that leave state in a session, each with a word that its finding must contain.
const TRACES: [(&str, &str); 20] = [
    ("SET work_mem = '77kB'", "setting work_mem"),
    ("SET app.tester = 'x'", "setting app.tester"),
    ("SET app.tester = 'x'; RESET ALL", "setting app.tester"),
    ("PREPARE p AS SELECT 1", "prepared statements"),
    ("BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT 1; COMMIT", "cursors"),
    ("LISTEN c", "channels"),
    ("CREATE TEMP TABLE t ()", "temporary schema"),
    ("SELECT pg_advisory_lock(1)", "advisory locks"),
    ("SELECT nextval('ticket')", "lastval"),
    ("SELECT nextval('ticket'), nextval('other.used'), nextval('cycling')", "currval"),
    ("SELECT setseed(0.3)", "random() is that of a seed"),
    ("LOAD 'auto_explain'", "libraries"),
    ("LOAD 'auto_explain'", "setting auto_explain.log_min_duration"),
    ("SELECT dblink_get_connections()", "libraries"),
    ("SELECT pg_replication_origin_session_setup('origin')", "replication origin"),
    ("SET SESSION AUTHORIZATION guest", "session_user"),
    ("SET ROLE guest", "current_user"),
    ("BEGIN", "transaction status"),
    ("SET default_transaction_read_only = on", "setting transaction_read_only"),
    ("SET timezone = 'Asia/Tokyo'", "ParameterStatus TimeZone"),
];

#[test]
fn unused_databases_and_sessions_do_not_differ() {
    for major in majors() {
        let runner = Runner::new(start(major, &[]));
        let server = runner.gateway.server();
        make_copy(&runner.gateway, "copy");
        let reference = Content::read(&server, "reference").unwrap();
        // Compare two copies, the reference itself, and a database's first lease.
        let mut session = runner.gateway.connect("first", BRIEF).unwrap();
        for name in ["copy", "copy", "reference", "first"] {
            let other = Content::read(&server, name).unwrap();
            assert_eq!(reference.differences(&other, None), [""; 0], "{name} on PostgreSQL {major}");
        }
        assert_eq!(runner.pg_dump("copy"), runner.pg_dump("reference"));
        let state = SessionState::read(&mut session, &seeded(&runner.gateway)).unwrap();
        let expected = direct_state(&runner.gateway, "");
        assert_eq!(expected.differences(&state), [""; 0], "through the gateway, PostgreSQL {major}");
        for _ in 0..5 {
            assert_eq!(expected.differences(&direct_state(&runner.gateway, "")), [""; 0]);
        }
    }
}

#[test]
fn every_planted_change_of_a_database_is_found() {
    for major in some_of([15, 18]) {
        let gateway = start(major, &[]);
        make_copy(&gateway, "reference");
        let server = gateway.server();
        let reference = Content::read(&server, "reference").unwrap();
        for (at, (change, word)) in CHANGES.iter().enumerate() {
            let name = format!("changed_{at}");
            make_copy(&gateway, &name);
            gateway.direct(&name, change).unwrap_or_else(|error| panic!("{change}: {error}"));
            let found = reference.differences(&Content::read(&server, &name).unwrap(), None);
            let is_found = found.iter().any(|line| line.starts_with(word));
            assert!(is_found || word.is_empty(), "PostgreSQL {major}: {change}: no {word:?} in {found:#?}");
            let _ = gateway.direct(&name, "ROLLBACK PREPARED 'p'");
            let _ = gateway.direct(&name, "ALTER SUBSCRIPTION s SET (slot_name = NONE); DROP SUBSCRIPTION s");
            gateway.direct("postgres", &format!("DROP DATABASE {name} WITH (FORCE)")).unwrap();
        }
    }
}

#[test]
fn every_planted_trace_of_a_session_is_found() {
    for major in majors() {
        let gateway = start(major, &[]);
        make_copy(&gateway, "reference");
        gateway.direct("reference", "SELECT pg_replication_origin_create('origin')").unwrap();
        let seeded = seeded(&gateway);
        let expected = direct_state(&gateway, "");
        for (trace, word) in TRACES {
            let mut session = Connection::open(&gateway.server(), "reference", &[]).unwrap();
            session.rows(trace).unwrap_or_else(|error| panic!("{trace}: {error}"));
            let found = expected.differences(&SessionState::read(&mut session, &seeded).unwrap());
            let is_found = found.iter().any(|line| line.starts_with(word));
            assert!(is_found, "PostgreSQL {major}: {trace}: no {word:?} in {found:#?}");
            session.close();
        }
    }
}

#[test]
fn every_start_up_parameter_shows_in_a_session() {
    for major in majors() {
        let gateway = start(major, &[]);
        make_copy(&gateway, "reference");
        let expected = direct_state(&gateway, "");
        let (parameters, _) = Parameter::all(&gateway.server());
        assert!(parameters.len() > 100, "{}", parameters.len());
        for parameter in parameters.iter().filter(|parameter| parameter.is_harmless()) {
            let found = expected.differences(&direct_state(&gateway, &parameter.option()));
            assert!(!found.is_empty(), "PostgreSQL {major}: {parameter:?} is not seen");
        }
    }
}

/// A statement that every server rejects wouldn't test anything.
#[test]
fn every_statement_has_its_expected_outcome() {
    const FAIL: [&str; 9] = [
        "SELECT 1 / 0",
        "INSERT INTO orders (customer) VALUES (-1)",
        "SELECT currval('ticket')",
        "BEGIN; INSERT INTO line VALUES (999,",
        "BEGIN; SET CONSTRAINTS ALL IMMEDIATE; INSERT INTO line",
        "SET statement_timeout = '1ms'",
        "DELETE FROM member WHERE id = 2",
        "DELETE FROM city; DELETE FROM country",
        "SELECT pg_create_logical_replication_slot",
    ];
    let gateway = start(15, &[]);
    gateway.direct("postgres", "SELECT pg_replication_origin_create('origin')").unwrap();
    let mut failed = Vec::new();
    for (at, (kind, line)) in some_of(statements()).into_iter().enumerate() {
        assert!(matches!(kind, "common" | "rare"), "{kind}: {line}");
        let name = format!("alone_{at}");
        make_copy(&gateway, &name);
        let line = line.replace("{n}", "3");
        let result = queries(&line).try_for_each(|query| gateway.direct(&name, query).map(drop));
        let meant = FAIL.iter().any(|start| line.starts_with(start));
        failed.extend(result.err().filter(|_| !meant).map(|error| format!("{line}: {error}")));
        let _ = gateway.direct(&name, "ROLLBACK PREPARED 'p3'");
        let _ = gateway.direct(&name, "ALTER SUBSCRIPTION s_3 SET (slot_name = NONE); DROP SUBSCRIPTION s_3");
        gateway.direct("postgres", &format!("DROP DATABASE {name} WITH (FORCE)")).unwrap();
    }
    assert_eq!(failed, [""; 0]);
}

fn seeded(gateway: &Gateway) -> SeededNumbers {
    let mut session = Connection::open(&gateway.server(), "reference", &[]).unwrap();
    SeededNumbers::read(&mut session).unwrap()
}

fn direct_state(gateway: &Gateway, options: &str) -> SessionState {
    let seeded = seeded(gateway);
    let mut session = Connection::open(&gateway.server(), "reference", &[("options", options)]).unwrap();
    let state = SessionState::read(&mut session, &seeded).unwrap();
    session.close();
    state
}
