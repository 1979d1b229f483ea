//! Tests that what pgfresh does in a client's session is invisible to the client.

use super::plain_answers::description_of;
use super::{bind, execute, majors, message, parse, query, run, sqlstate, start, sync};

#[test]
fn prepared_statements_of_pgfresh_are_not_seen() {
    for major in majors() {
        let serve = start(major);
        let mut session = serve.rollback("prepared");
        let names = "SELECT coalesce(string_agg(name, ' '), '') FROM pg_prepared_statements";
        for sql in [
            "SELECT 1",
            "SELECT 1/0",
            "BEGIN; SELECT 1; ROLLBACK",
            "BEGIN",
            "INSERT INTO seed VALUES (3)",
            "COMMIT",
        ] {
            session.ask(sql);
            assert_eq!(session.value(names).unwrap(), "", "after {sql} on PostgreSQL {major}");
        }
        // A failed commit doesn't leave a visible statement either.
        session.ask("INSERT INTO child VALUES (1)");
        assert_eq!(session.value(names).unwrap(), "", "PostgreSQL {major}");
        session.send(&[parse("mine", "SELECT 1"), run("SELECT 2"), sync()].concat());
        session.until_ready();
        assert_eq!(session.value(names).unwrap(), "mine", "PostgreSQL {major}");
        let cursors = "SELECT count(*) FROM pg_cursors WHERE name LIKE '%pgfresh%'";
        assert_eq!(session.value(cursors).unwrap(), "0", "PostgreSQL {major}");
    }
}

#[test]
fn settings_are_reported_as_by_plain_servers() {
    assert_same_answers(&[
        "BEGIN",
        "SET timezone = 'Etc/GMT-7'",
        "ROLLBACK",
        "BEGIN; SET timezone = 'Etc/GMT-7'; ROLLBACK",
        "SET LOCAL timezone = 'Etc/GMT-7'",
        "SELECT 1; SET LOCAL timezone = 'Etc/GMT-7'; SELECT 2",
        "BEGIN; SET LOCAL timezone = 'Etc/GMT-7'; COMMIT",
        "SET timezone = 'Etc/GMT-7'; SELECT 1/0",
        "SET datestyle = 'SQL'; SET timezone = 'Etc/GMT-7'; SET application_name = 'x'",
        "BEGIN; SET datestyle = 'ISO'; COMMIT; BEGIN; SET timezone = 'UTC'; COMMIT; SET application_name = 'y'",
        "SET SESSION AUTHORIZATION pg_monitor",
        "RESET SESSION AUTHORIZATION",
        "DISCARD ALL",
    ]);
}

#[test]
fn earlier_leases_leave_no_currval() {
    for major in majors() {
        let serve = start(major);
        let mut first = serve.rollback("first");
        first.value("SELECT nextval('seeded')").unwrap();
        first.close();
        let mut second = serve.rollback("second");
        assert_eq!(sqlstate(second.value("SELECT currval('seeded')")), "55000", "PostgreSQL {major}");
        assert_eq!(sqlstate(second.value("SELECT lastval()")), "55000", "PostgreSQL {major}");
    }
}

#[test]
fn read_only_chains_stay_so_after_errors() {
    assert_same_answers(&[
        "BEGIN; SET TRANSACTION READ ONLY; COMMIT AND CHAIN",
        "RELEASE none",
        "COMMIT AND CHAIN; INSERT INTO seed VALUES (7)",
        "ROLLBACK",
        "BEGIN READ ONLY",
        "RELEASE none",
        "ROLLBACK AND CHAIN; INSERT INTO seed VALUES (8)",
        "ROLLBACK",
    ]);
}

#[test]
fn second_begin_may_change_modes_before_queries() {
    assert_same_answers(&[
        "BEGIN READ ONLY",
        "START TRANSACTION READ WRITE",
        "INSERT INTO seed VALUES (7)",
        "ROLLBACK",
        "BEGIN READ ONLY; BEGIN READ WRITE; INSERT INTO seed VALUES (7); ROLLBACK",
        "BEGIN READ ONLY; SET TRANSACTION READ WRITE; INSERT INTO seed VALUES (8); COMMIT",
        "BEGIN; BEGIN READ ONLY; INSERT INTO seed VALUES (9)",
        "ROLLBACK",
        "BEGIN READ ONLY; SELECT 1; BEGIN READ WRITE",
        "ROLLBACK",
        "BEGIN",
        "SET TRANSACTION READ ONLY",
        "SET TRANSACTION READ WRITE",
        "INSERT INTO seed VALUES (7)",
        "ROLLBACK",
        "BEGIN",
        "SET transaction_read_only = on",
        "SET LOCAL transaction_read_only TO off",
        "INSERT INTO seed VALUES (7)",
        "SET SESSION transaction_read_only = on",
        "SET transaction_read_only = off",
        "ROLLBACK",
        "SET transaction_read_only = on",
        "SET LOCAL transaction_read_only = off",
        "BEGIN READ ONLY; COMMIT AND CHAIN",
        "SET TRANSACTION READ WRITE",
        "INSERT INTO seed VALUES (7)",
        "COMMIT AND CHAIN",
        "INSERT INTO seed VALUES (8)",
        "ROLLBACK",
        "DELETE FROM seed WHERE n = 7",
        "INSERT INTO seed VALUES (9); BEGIN READ ONLY; SET TRANSACTION READ WRITE",
        "ROLLBACK",
        "TABLE seed",
        "BEGIN READ ONLY; SAVEPOINT a; SET TRANSACTION READ WRITE",
        "ROLLBACK",
    ]);
    for major in majors() {
        let serve = start(major);
        let mut session = serve.rollback("levels");
        for sql in ["BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ", "INSERT INTO seed VALUES (7)", "COMMIT"]
        {
            session.value(sql).unwrap_or_else(|error| panic!("{sql} on PostgreSQL {major}: {error:?}"));
        }
        assert_eq!(session.value("SELECT count(*) FROM seed").unwrap(), "3");
    }
}

/// Runs the statements in rollback isolation and on a plain server, and compares the responses.
fn assert_same_answers(statements: &[&str]) {
    for major in majors() {
        let serve = start(major);
        let mut plain = serve.connect("plain", "").unwrap();
        let mut rollback = serve.rollback("rollback");
        for sql in statements {
            let [found, expected] = [&mut rollback, &mut plain].map(|client| client.ask(sql));
            let [found, expected] =
                [found, expected].map(|said| said.iter().map(description_of).collect::<Vec<_>>());
            assert_eq!(found, expected, "{sql} on PostgreSQL {major}");
        }
    }
}

/// Portals end with their transaction, including unnamed portals and those of BEGIN and SET.
#[test]
fn portals_end_with_their_transaction() {
    let named = |portal: &str, sql: &str| [parse("", sql), bind(portal, ""), execute(portal)].concat();
    let two_rows = |portal: &str| message(b'E', format!("{portal}\0\0\0\0\x02").as_bytes());
    let rows = [parse("", "SELECT generate_series(1, 9)"), bind("", ""), two_rows("")].concat();
    let of_name = [parse("", "SELECT generate_series(1, 9)"), bind("p", ""), two_rows("p")].concat();
    let groups: [&[Vec<u8>]; 6] = [
        &[named("n", "SET work_mem = '100kB'"), query("SHOW work_mem")],
        &[
            named("n", "BEGIN"),
            query("INSERT INTO seed VALUES (9)"),
            named("o", "COMMIT"),
            query("TABLE seed"),
        ],
        &[
            named("N n", "START TRANSACTION"),
            named("l", "LOCK TABLE seed"),
            named("s", "SAVEPOINT a"),
            query("COMMIT"),
        ],
        &[rows.clone(), two_rows(""), query("SELECT 1")],
        &[of_name.clone(), two_rows("p"), query("SELECT 1")],
        &[query("BEGIN"), rows, two_rows(""), of_name, query("COMMIT"), two_rows("p"), two_rows("")],
    ];
    for major in majors() {
        let serve = start(major);
        for group in groups {
            let mut plain = serve.connect("plain", "-c pgfresh.linger=0").unwrap();
            let mut rollback = serve.rollback("rollback");
            for (at, bytes) in group.iter().enumerate() {
                let bytes = if bytes[0] == b'Q' { bytes.clone() } else { [&bytes[..], &sync()].concat() };
                let said = [&mut rollback, &mut plain].map(|client| {
                    client.send(&bytes);
                    client.until_ready().iter().map(description_of).collect::<Vec<_>>()
                });
                let [found, expected] = said;
                assert_eq!(found, expected, "{at} of {group:?} on PostgreSQL {major}");
            }
        }
    }
}

#[test]
fn large_object_descriptors_end_with_their_transaction() {
    assert_same_answers(&[
        "SELECT lo_create(777)",
        "SELECT lo_open(777, 131072)",
        "SELECT lowrite(0, 'abc')",
        "BEGIN",
        "SELECT lo_open(777, 131072), lo_open(777, 262144)",
        "SELECT lo_close(0), lowrite(1, 'abc')",
        "COMMIT",
        "SELECT lo_close(1)",
        "BEGIN; SAVEPOINT a; SELECT lo_open(777, 131072); RELEASE a; SELECT lowrite(0, 'de'); COMMIT",
        "SELECT lowrite(0, 'abc')",
        "SELECT lo_get(777)",
        "BEGIN; SELECT count(lo_open(777, 262144)) FROM generate_series(1, 130); COMMIT",
        "BEGIN; SELECT lo_open(777, 262144); ROLLBACK",
        "SET work_mem = '1MB'; SELECT lo_open(777, 262144)",
        "SHOW work_mem",
        "INSERT INTO child VALUES (7)",
        "DROP EXTENSION plpgsql CASCADE",
        "BEGIN; SET LOCAL work_mem = '2MB'; INSERT INTO seed VALUES (7); SELECT lo_open(777, 262144); COMMIT",
        "SHOW work_mem",
        "SELECT lo_open(777, 262144) >= 0",
    ]);
}

#[test]
fn statistics_are_read_once_per_transaction() {
    let name = "SELECT application_name FROM pg_stat_activity WHERE pid = pg_backend_pid()";
    assert_same_answers(&[
        name,
        "SET application_name = 'worker'",
        name,
        "BEGIN",
        name,
        "SET application_name = 'other'",
        name,
        "COMMIT",
        name,
        "BEGIN; SET application_name = 'undone'; SELECT count(*) > 0 FROM pg_stat_activity; ROLLBACK",
        name,
    ]);
}

/// A server reads a whole string before it runs any of it.
#[test]
fn strings_keep_the_meaning_of_backslashes() {
    assert_same_answers(&[
        r"SET standard_conforming_strings = off; SELECT 'a\'; SELECT 2; --'",
        r"SELECT E'a\'b'; SET standard_conforming_strings = on; SELECT E'c'",
        r"BEGIN; SET standard_conforming_strings = off; SELECT 'a\'; COMMIT; --'",
        "RESET standard_conforming_strings",
    ]);
}

#[test]
fn terminated_sessions_get_one_error() {
    for major in majors() {
        let serve = start(major);
        let sessions = [serve.rollback("rollback"), serve.connect("plain", "").unwrap()];
        let [found, expected] = sessions.map(|mut session| {
            session.send(&query("SELECT pg_terminate_backend(pg_backend_pid())"));
            let all = std::iter::repeat_with(|| session.read()).take_while(|message| message.0 != 0);
            all.map(|message| description_of(&message)).collect::<Vec<_>>()
        });
        assert_eq!(found, expected, "PostgreSQL {major}");
    }
}
