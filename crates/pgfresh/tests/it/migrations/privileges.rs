//! Tests that the laboratory sees the facts of roles that may not read the catalogs.

use super::script::Script;
use super::summary::{Bench, facts};
use crate::common::on_every_major;

const SCHEMA: &str = "
    CREATE TABLE orders (id int, total int);
    INSERT INTO orders SELECT n, n FROM generate_series(1, 1000) n;
    CREATE ROLE low LOGIN;
    ALTER TABLE orders OWNER TO low;
    GRANT ALL ON SCHEMA public TO low;";

/// Privileges without which a role can't read its own locks.
const NEEDED: [&str; 6] = [
    "SELECT ON pg_locks",
    "SELECT ON pg_class",
    "SELECT ON pg_trigger",
    "EXECUTE ON FUNCTION pg_backend_pid()",
    "EXECUTE ON FUNCTION pg_relation_filenode(regclass)",
    "EXECUTE ON FUNCTION pg_stat_get_xact_numscans(oid)",
];

on_every_major! {
    roles_without_privileges_have_facts
    refused_questions_are_reported
}

/// Returns a script whose second session is that of a role without the privileges.
fn script(revoked: &[&str]) -> Script {
    let mut script = Script::new(&["app", "app"]);
    script.sessions[1].parameters = vec![("user".to_owned(), "low".to_owned())];
    for privilege in revoked {
        script.query(0, &format!("REVOKE {privilege} FROM public"), (&["REVOKE"], "", b'I'));
    }
    script.query(0, "SET ROLE low", (&["SET"], "", b'I'));
    script.query(0, "ALTER TABLE orders ALTER total TYPE bigint", (&["ALTER TABLE"], "", b'I'));
    script.begin(1);
    script.query(1, "BEGIN", (&["BEGIN"], "", b'T'));
    script.query(1, "CREATE INDEX ON orders (total)", (&["CREATE INDEX"], "", b'T'));
    script.query(1, "COMMIT", (&["COMMIT"], "", b'I'));
    script
}

fn roles_without_privileges_have_facts(major: u32) {
    let mut bench = Bench::new(major, SCHEMA);
    let observations = bench.laboratory.observe(&script(&NEEDED).sessions).unwrap();
    bench.laboratory.stop().unwrap();
    assert_eq!(observations.unseen, Vec::<String>::new());
    let lines: Vec<_> = observations.statements.iter().map(facts).filter(|line| !line.is_empty()).collect();
    assert_eq!(
        lines,
        [
            "ACCESS EXCLUSIVE orders; rewrites orders; scans orders: 1, 1000",
            "SHARE orders; scans orders: 1, 1000"
        ]
    );
}

fn refused_questions_are_reported(major: u32) {
    let mut bench = Bench::new(major, SCHEMA);
    let mut script = script(&["ALL ON SCHEMA pg_catalog"]);
    script.sessions.truncate(1);
    let observations = bench.laboratory.observe(&script.sessions).unwrap();
    bench.laboratory.stop().unwrap();
    let cause = "permission denied for schema pg_catalog";
    let last = observations.statements.last().unwrap();
    assert_eq!(last.unobserved.as_deref(), Some(cause));
    let line = format!("facts of \"ALTER TABLE orders ALTER total TYPE bigint\": {cause}");
    assert!(observations.unseen.contains(&line), "{:?}", observations.unseen);
}
