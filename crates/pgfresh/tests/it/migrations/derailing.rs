//! Tests that an odd statement doesn't hide the facts of the statements after it.

use super::script::Script;
use super::summary::{Bench, facts};
use crate::common::on_every_major;

const SCHEMA: &str = "
    CREATE TABLE orders (id int PRIMARY KEY, total int);
    INSERT INTO orders SELECT n, n FROM generate_series(1, 1000) n;";

on_every_major! {
    statements_that_need_transactions_fail_again
}

/// Repeats a script. Returns a line for each statement, and the clauses about what wasn't seen.
fn repeat(major: u32, script: &Script) -> (Vec<String>, Vec<String>) {
    let mut bench = Bench::new(major, SCHEMA);
    let observations = bench.laboratory.observe(&script.sessions).unwrap();
    bench.laboratory.stop().unwrap();
    let lines = observations.statements.iter().map(|one| format!("{} {}", one.sql, facts(one)));
    (lines.map(|line| line.trim_end().to_owned()).collect(), observations.unseen)
}

fn statements_that_need_transactions_fail_again(major: u32) {
    let mut script = Script::new(&["app"]);
    script.query(0, "LOCK TABLE orders", (&[], "25P01", b'I'));
    script.query(0, "DECLARE c CURSOR FOR SELECT 1", (&[], "25P01", b'I'));
    script.query(0, "VACUUM FULL orders", (&["VACUUM"], "", b'I'));
    // The laboratory can't repeat this error.
    script.query(0, "LOCK TABLE orders IN SHARE MODE", (&[], "42501", b'I'));
    script.query(0, "ALTER TABLE orders ALTER total TYPE bigint", (&["ALTER TABLE"], "", b'I'));
    let (lines, unseen) = repeat(major, &script);
    assert_eq!(
        lines,
        [
            "LOCK TABLE orders",
            "DECLARE c CURSOR FOR SELECT 1",
            "VACUUM FULL orders ACCESS EXCLUSIVE orders; rewrites orders; rewrites orders_pkey; scans orders: 2, 2000",
            "LOCK TABLE orders IN SHARE MODE SHARE orders",
            "ALTER TABLE orders ALTER total TYPE bigint ACCESS EXCLUSIVE orders; ACCESS EXCLUSIVE orders_pkey; \
             rewrites orders; rewrites orders_pkey; scans orders: 2, 2000",
        ]
    );
    assert_eq!(unseen.len(), 1, "{unseen:?}");
    assert!(
        unseen[0].starts_with("facts of \"LOCK TABLE orders IN SHARE MODE\": the laboratory got \"LOCK"),
        "{unseen:?}"
    );
}
