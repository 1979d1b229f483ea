//! Tests rollback isolation: leases are clean, and pgfresh's own statements don't have a visible effect.

use crate::common::connection::Connection;
use crate::common::gateway::Gateway;
use crate::common::on_every_major;
use crate::reset::BRIEF;

on_every_major! {
    rollback_leases_share_no_sequence_values
    rollback_leases_reset_rewritten_sequences
    a_held_cursor_error_has_a_hint
    rollback_isolation_hides_pgfresh_statements
    parameters_are_reported_where_a_server_reports_them
}

/// Options for a rollback lease that ends with its session.
const ROLLBACK: &str = "-c pgfresh.isolation=rollback -c pgfresh.linger=0";

fn rollback_leases_share_no_sequence_values(major: u32) {
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

/// TRUNCATE gives a sequence a different file than in the template. The role isn't a superuser, so pgfresh only finds
/// the change in the WAL.
fn rollback_leases_reset_rewritten_sequences(major: u32) {
    let template = "CREATE ROLE plain LOGIN; CREATE TABLE t (id serial); GRANT ALL ON t, t_id_seq TO plain";
    let gateway = Gateway::start(major, template, &[]);
    let names = ["one", "two", "three"];
    let mut sessions = names.map(|name| gateway.connect_in_time(name, BRIEF));
    for session in &mut sessions {
        session.rows("TRUNCATE t RESTART IDENTITY").unwrap();
    }
    sessions.into_iter().for_each(Connection::close);
    for round in 0..3 {
        let parameters = [("user", "plain"), ("options", ROLLBACK)];
        let open = |name| Connection::open(&gateway.address(), name, &parameters).unwrap();
        let mut sessions = names.map(open);
        for session in &mut sessions {
            let value = session.value("SELECT nextval('t_id_seq')").unwrap();
            assert_eq!(value, "1", "round {round} on PostgreSQL {major}");
        }
        sessions.into_iter().for_each(Connection::close);
    }
}

/// A plain server copies a WITH HOLD cursor's rows when its transaction ends, which isn't possible in rollback
/// isolation. The error is the server's own with a hint, and docs/isolation.md describes it.
fn a_held_cursor_error_has_a_hint(major: u32) {
    let gateway = Gateway::clean(major, &[]);
    let mut session = gateway.connect_in_time("cursor", ROLLBACK);
    session.rows("BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT id FROM seed ORDER BY id; COMMIT").unwrap();
    assert_eq!(session.value("FETCH c").unwrap(), "1");
    for sql in ["TRUNCATE seed", "ALTER TABLE seed ADD COLUMN extra int", "DROP TABLE seed"] {
        let state = session.value(sql).map_err(|error| error.sqlstate);
        assert_eq!(state, Err("55006".to_owned()), "{sql} on PostgreSQL {major}");
    }
    assert_eq!(session.value("FETCH c").unwrap(), "2");
    session.rows("CLOSE c; TRUNCATE seed").unwrap();
    session.close();
}

fn rollback_isolation_hides_pgfresh_statements(major: u32) {
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

/// Returns the messages in a query's response: tags, and the content of ParameterStatus and ReadyForQuery.
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
