//! Rollback isolation: fault 9 of issue 13.

use super::common::connection::Connection;
use super::common::gateway::Gateway;
use super::{BRIEF, on_every_major};

on_every_major! {
    a_rollback_lease_has_no_sequence_value_of_an_earlier_one
    a_held_cursor_is_in_no_ones_way_in_rollback_isolation
    statements_of_pgfresh_are_not_seen_in_rollback_isolation
    parameters_are_reported_where_a_server_reports_them
}

/// A rollback lease that ends with its session.
const ROLLBACK: &str = "-c pgfresh.isolation=rollback -c pgfresh.linger=0";

fn a_rollback_lease_has_no_sequence_value_of_an_earlier_one(major: u32) {
    let gateway = Gateway::clean(major, &[]);
    for round in 0..5 {
        let mut session = gateway.connect_in_time("r", ROLLBACK);
        for sql in ["SELECT currval('ticket')", "SELECT currval('used')", "SELECT lastval()"] {
            let state = session.value(sql).map_err(|error| error.sqlstate);
            assert_eq!(state, Err("55000".to_owned()), "{sql} in round {round} on PostgreSQL {major}");
        }
        assert_eq!(session.value("SELECT nextval('ticket')").unwrap(), "1");
        assert_eq!(session.value("SELECT nextval('used')").unwrap(), "2");
        session.close();
    }
}

fn a_held_cursor_is_in_no_ones_way_in_rollback_isolation(major: u32) {
    let gateway = Gateway::clean(major, &[]);
    let mut answers = Vec::new();
    for options in [BRIEF, ROLLBACK] {
        let mut session = gateway.connect_in_time("cursor", options);
        session
            .rows("BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT id FROM seed ORDER BY id; COMMIT")
            .unwrap();
        let mut answer = |sql: &str| session.value(sql).map_err(|error| error.sqlstate);
        answers.push([
            answer("FETCH c"),
            answer("TRUNCATE seed"),
            answer("ALTER TABLE seed ADD COLUMN extra int"),
            answer("DROP TABLE seed"),
            answer("FETCH c"),
        ]);
        session.close();
    }
    assert_eq!(answers[1], answers[0], "PostgreSQL {major}: with rollback isolation, and without");
}

fn statements_of_pgfresh_are_not_seen_in_rollback_isolation(major: u32) {
    let gateway = Gateway::clean(major, &[]);
    for round in 0..3 {
        let mut session = gateway.connect_in_time("r", ROLLBACK);
        session.rows("INSERT INTO t VALUES ('x'); SELECT nextval('ticket')").unwrap();
        let names = session.value("SELECT string_agg(name, ', ') FROM pg_prepared_statements").unwrap();
        assert_eq!(names, "", "round {round} on PostgreSQL {major}");
        let names = session.value("SELECT string_agg(name, ', ') FROM pg_cursors WHERE name <> ''").unwrap();
        assert_eq!(names, "", "round {round} on PostgreSQL {major}");
        session.close();
    }
}

fn parameters_are_reported_where_a_server_reports_them(major: u32) {
    let gateway = Gateway::clean(major, &[]);
    for statements in [
        &["BEGIN", "SET timezone = 'Asia/Tokyo'", "ROLLBACK"][..],
        &["BEGIN; SET timezone = 'Asia/Tokyo'; ROLLBACK"],
        &["BEGIN", "SET timezone = 'Asia/Tokyo'", "COMMIT", "RESET timezone"],
        &["BEGIN", "SET LOCAL timezone = 'Asia/Tokyo'", "SELECT 1/0", "ROLLBACK"],
        &["BEGIN", "SAVEPOINT s", "SET datestyle = 'SQL'", "ROLLBACK TO s", "COMMIT"],
        &["SET application_name = 'a'; SET client_encoding = 'LATIN1'", "DISCARD ALL"],
    ] {
        let mut said = [BRIEF, ROLLBACK].map(|options| {
            let mut session = gateway.connect_in_time("parameters", options);
            let said: Vec<String> = statements.iter().flat_map(|sql| messages(&mut session, sql)).collect();
            session.close();
            said
        });
        let [plain, rollback] = &mut said;
        assert_eq!(
            rollback, plain,
            "PostgreSQL {major}, {statements:?}: with rollback isolation, and without"
        );
    }
}

/// The messages that a query gets: their tags, and of ParameterStatus and ReadyForQuery what they say.
fn messages(session: &mut Connection, sql: &str) -> Vec<String> {
    session.send(b'Q', format!("{sql}\0").as_bytes()).unwrap();
    let mut said = Vec::new();
    loop {
        let (tag, body) = session.read().unwrap();
        let text = if matches!(tag, b'S' | b'Z' | b'C') {
            String::from_utf8_lossy(&body).replace('\0', " ")
        } else {
            String::new()
        };
        said.push(format!("{} {text}", char::from(tag)));
        if tag == b'Z' {
            return said;
        }
    }
}
