//! Tests names whose last database pgfresh can't take back, because the server refuses pgfresh's statements.

use std::time::{Duration, Instant};

use crate::common::connection::{Connection, SqlError};
use crate::common::gateway::Gateway;
use crate::common::on_every_major;

on_every_major! {
    failing_cleanup_refuses_clients_in_time
    names_work_again_after_a_repair
}

/// Time to the first answer, as documented in `docs/limits.md`.
const FIRST_ANSWER: Duration = Duration::from_secs(30);

/// Returns SQL that gives the superuser its rights or takes them away. Since version 16, ALTER ROLE can't take them.
fn superuser(has_rights: bool) -> String {
    format!("UPDATE pg_authid SET rolsuper = {has_rights} WHERE rolname = 'postgres'")
}

/// Starts a gateway and takes the superuser's rights away in a session of `name`, whose lease ends with the session.
fn without_rights(major: u32) -> Gateway {
    let gateway = Gateway::start(major, "CREATE TABLE t (n int)", &["--linger", "0s"]);
    let mut session = gateway.connect("name", "").unwrap();
    session.rows("INSERT INTO t VALUES (1); CREATE ROLE other SUPERUSER LOGIN").unwrap();
    session.rows(&superuser(false)).unwrap();
    session.close();
    gateway
}

/// Connects to `name`. Returns pgfresh's error and how long it took.
fn refused(gateway: &Gateway) -> (SqlError, Duration) {
    let begun = Instant::now();
    let error = gateway.connect("name", "").err().expect("pgfresh has no right to rename the database");
    (error, begun.elapsed())
}

fn failing_cleanup_refuses_clients_in_time(major: u32) {
    let gateway = without_rights(major);
    let (error, waited) = refused(&gateway);
    assert!(waited < FIRST_ANSWER, "PostgreSQL {major}: {waited:?}");
    assert_eq!(error.sqlstate, "42501", "PostgreSQL {major}: {error}");
    let (what, why) =
        ("cannot prepare database \"name\": could not ", "permission denied for table pg_database");
    assert!(error.message.starts_with(what) && error.message.contains(why), "PostgreSQL {major}: {error}");
    // The next client waits for a single attempt.
    let (error, again) = refused(&gateway);
    assert!(
        error.message.starts_with(what) && again < FIRST_ANSWER / 6,
        "PostgreSQL {major}: {again:?} {error}"
    );
    let body = r#"{"name": "name"}"#;
    let (code, answer) = gateway.http("POST", "/v1/databases", body);
    assert!(code >= 400 && answer.to_string().contains(why), "PostgreSQL {major}: {code} {answer}");
}

fn names_work_again_after_a_repair(major: u32) {
    let gateway = without_rights(major);
    assert_eq!(refused(&gateway).0.sqlstate, "42501", "PostgreSQL {major}");
    let mut other = Connection::open(&gateway.server(), "postgres", &[("user", "other")]).unwrap();
    other.rows(&superuser(true)).unwrap();
    other.close();
    let mut session = gateway.connect("name", "").unwrap();
    assert_eq!(session.value("SELECT count(*) FROM t").unwrap(), "0", "PostgreSQL {major}");
}
