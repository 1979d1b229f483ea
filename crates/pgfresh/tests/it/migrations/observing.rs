//! Tests that the laboratory repeats a migration as its tool ran it, and finds the facts about each statement.

use super::summary::{Bench, facts};
use crate::common::on_every_major;

const SCHEMA: &str = "
    CREATE TABLE orders (id int PRIMARY KEY, status varchar(20), amount numeric);
    INSERT INTO orders SELECT n, 'new', n FROM generate_series(1, 1000) n;
    CREATE TABLE items (id int PRIMARY KEY, order_id int);
    INSERT INTO items SELECT n, n FROM generate_series(1, 100) n;";

on_every_major! {
    simple_statements_have_their_facts
    fresh_and_migrated_databases_differ
}

fn simple_statements_have_their_facts(major: u32) {
    let observations = Bench::new(major, SCHEMA).observe(&[
        "ALTER TABLE orders ALTER COLUMN id TYPE bigint",
        "ALTER TABLE orders ALTER COLUMN status TYPE varchar(40)",
        "BEGIN",
        "SET LOCAL lock_timeout = '5s'",
        "CREATE INDEX ON orders (status)",
        "ALTER TABLE items ADD FOREIGN KEY (order_id) REFERENCES orders (id)",
        "COMMIT",
        "CREATE INDEX CONCURRENTLY ON items (order_id)",
        "CREATE TABLE new (id int); CREATE INDEX ON new (id); TRUNCATE items",
        "VACUUM FULL orders",
        "VACUUM orders",
    ]);
    let seen: Vec<_> = observations
        .statements
        .iter()
        .map(|one| {
            format!(
                "{} {} {} | {}",
                one.transaction,
                one.tag.as_deref().unwrap(),
                one.is_outside_transactions,
                facts(one)
            )
        })
        .collect();
    let expected = [
        "0 ALTER TABLE false | ACCESS EXCLUSIVE orders; ACCESS EXCLUSIVE orders_pkey; rewrites orders; \
         rewrites orders_pkey; scans orders: 2, 2000",
        "1 ALTER TABLE false | ACCESS EXCLUSIVE orders",
        "2 BEGIN false | ",
        "2 SET false | ",
        "2 CREATE INDEX false | SHARE orders; scans orders: 1, 1000",
        "2 ALTER TABLE false | SHARE ROW EXCLUSIVE items; SHARE ROW EXCLUSIVE orders; scans items: 1, 100; \
         scans orders: 1, 1000",
        "2 COMMIT false | ",
        "3 CREATE INDEX true | SHARE UPDATE EXCLUSIVE items; scans items: 2, 200",
        "4 CREATE TABLE false | ",
        "4 CREATE INDEX false | ",
        "4 TRUNCATE TABLE false | ACCESS EXCLUSIVE items; ACCESS EXCLUSIVE items_order_id_idx; \
         ACCESS EXCLUSIVE items_pkey; empties items; empties items_order_id_idx; empties items_pkey",
        "5 VACUUM true | ACCESS EXCLUSIVE orders; rewrites orders; rewrites orders_pkey; \
         rewrites orders_status_idx; scans orders: 3, 3000",
        "6 VACUUM true | SHARE UPDATE EXCLUSIVE orders",
    ];
    assert_eq!(seen, expected);
}

fn fresh_and_migrated_databases_differ(major: u32) {
    let mut bench = Bench::new(major, SCHEMA);
    let transcripts = migrations::testing::transcript_of(&["DROP TABLE items"]);
    bench.laboratory.observe(&transcripts).unwrap();
    let fresh = bench.laboratory.fresh_database().unwrap();
    let migrated = bench.laboratory.migrated_database().to_owned();
    assert_eq!(migrated, "app");
    for (database, tables) in [(&fresh, "2"), (&migrated, "1")] {
        let mut session = bench.laboratory.session(database).unwrap();
        let rows = session.query("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").unwrap();
        assert_eq!(rows[0][0].as_deref(), Some(tables), "{database}");
    }
    assert_ne!(bench.laboratory.fresh_database().unwrap(), fresh);
    bench.laboratory.stop().unwrap();
}
