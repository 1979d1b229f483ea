//! Tests predictions from observed facts: sizes from real catalogs, a real server's speeds, and the
//! statements whose time grows.

use migrations::testing::transcript_of;
use migrations::{Production, RelationSize, Speeds, TableRows, TemplateTables, predict, predict_held};
use plans::{RelationKind, RelationName};

use super::summary::Bench;
use crate::common::on_every_major;

const SCHEMA: &str = "
    CREATE TABLE customers (id int PRIMARY KEY, email varchar(40) NOT NULL);
    CREATE TABLE orders (id int PRIMARY KEY, customer_id int, status varchar(20), amount numeric(10, 2), note text,
        created timestamptz NOT NULL DEFAULT now());
    CREATE INDEX orders_status ON orders (status);
    CREATE TABLE events (id bigint, day date) PARTITION BY RANGE (day);
    CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM ('2025-01-01') TO ('2025-07-01');
    CREATE TABLE events_2 PARTITION OF events FOR VALUES FROM ('2025-07-01') TO ('2026-01-01');
    INSERT INTO customers SELECT n, 'user' || n || '@example.org' FROM generate_series(1, 200) n;
    INSERT INTO orders SELECT n, n, 'paid', n, md5(n::text) FROM generate_series(1, 200) n;";

on_every_major! {
    statements_that_grow_have_predictions
    estimated_sizes_are_near_real_ones
    measured_speeds_leave_nothing_behind
}

/// Statements, and whether their time grows with the rows.
const STATEMENTS: [(&str, bool); 24] = [
    ("ALTER TABLE orders ADD COLUMN a int DEFAULT 0", false),
    ("ALTER TABLE orders ALTER COLUMN status TYPE varchar(40)", false),
    ("ALTER TABLE orders ALTER COLUMN customer_id SET NOT NULL", true),
    ("ALTER TABLE orders ADD CONSTRAINT c CHECK (amount > 0) NOT VALID", false),
    ("ALTER TABLE orders VALIDATE CONSTRAINT c", true),
    ("ALTER TABLE orders ADD FOREIGN KEY (customer_id) REFERENCES customers", true),
    ("ALTER TABLE orders ADD CONSTRAINT f FOREIGN KEY (customer_id) REFERENCES customers NOT VALID", false),
    ("ALTER TABLE orders VALIDATE CONSTRAINT f", true),
    ("CREATE INDEX ON orders (created)", true),
    ("CREATE INDEX CONCURRENTLY ON orders (note)", true),
    ("CREATE INDEX ON events (day)", true),
    ("ALTER TABLE orders ADD UNIQUE (id, status)", true),
    ("ALTER TABLE orders ADD COLUMN token uuid DEFAULT gen_random_uuid()", true),
    ("ALTER TABLE orders ALTER COLUMN amount TYPE numeric(12, 3)", true),
    ("UPDATE orders SET status = 'new'", true),
    // The expressions prevent the use of the index. Otherwise, the planner might or might not select it.
    ("UPDATE orders SET status = 'new' WHERE note || '' LIKE 'a%'", true),
    ("DELETE FROM orders WHERE note || '' LIKE 'b%'", true),
    ("CREATE TABLE archive AS SELECT * FROM orders", true),
    ("INSERT INTO archive SELECT * FROM orders", true),
    ("INSERT INTO customers VALUES (1000, 'a')", false),
    ("REINDEX TABLE orders", true),
    ("VACUUM FULL orders", true),
    ("DROP INDEX orders_status", false),
    ("TRUNCATE orders", false),
];

fn rows(rows: &[&str]) -> Vec<TableRows> {
    rows.iter().map(|rows| rows.parse().unwrap()).collect()
}

fn statements_that_grow_have_predictions(major: u32) {
    let mut bench = Bench::new(major, SCHEMA);
    let transcripts = transcript_of(&STATEMENTS.map(|(sql, _)| sql));
    let observations = bench.laboratory.observe(&transcripts).unwrap();
    let fresh = bench.laboratory.fresh_database().unwrap();
    let mut session = bench.laboratory.session(&fresh).unwrap();
    let template = TemplateTables::read(&mut session).unwrap();
    let speeds = Speeds::measure(&mut session).unwrap();
    let given = rows(&["orders=10M", "customers=1M", "events=50M"]);
    let production = Production::new(&template, &observations.sizes, None, &given).unwrap();
    let predicted = predict(&observations, &production, &speeds);
    let held = predict_held(&observations, &predicted);
    assert_eq!(observations.statements.len(), STATEMENTS.len());
    for ((statement, range), (sql, grows)) in observations.statements.iter().zip(&predicted).zip(STATEMENTS) {
        assert_eq!(statement.error, None, "{sql}");
        assert_eq!(range.is_some(), grows, "{sql}: {:?} {:?}", statement.scans, statement.rewrites);
        assert!(range.is_none_or(|range| 0.0 <= range.low && range.low < range.high), "{sql}");
    }
    // Each statement is a transaction.
    assert_eq!(held.iter().map(Option::is_some).collect::<Vec<_>>(), STATEMENTS.map(|(_, grows)| grows));
}

fn estimated_sizes_are_near_real_ones(major: u32) {
    let empty = SCHEMA.split("INSERT").next().unwrap();
    let bench = Bench::new(major, empty);
    let mut session = bench.laboratory.session(bench.laboratory.migrated_database()).unwrap();
    let template = TemplateTables::read(&mut session).unwrap();
    session
        .query(
            "INSERT INTO customers SELECT n, 'user' || n || '@example.org' FROM generate_series(1, 20000) n",
        )
        .unwrap();
    session
        .query("INSERT INTO orders SELECT n, n, 'paid', n, md5(n::text) FROM generate_series(1, 20000) n")
        .unwrap();
    for table in ["customers", "orders"] {
        let relation = RelationName { schema: "public".to_owned(), name: table.to_owned() };
        let size = RelationSize {
            database: "app".to_owned(),
            relation: relation.clone(),
            kind: RelationKind::Table,
            table: None,
            pages: 0,
            toast_pages: 0,
            rows: 0.0,
        };
        let given = rows(&[&format!("{table}=20k")]);
        let production = Production::new(&template, &[size], None, &given).unwrap();
        let (_, estimated) = production.size_of(&relation).unwrap();
        let real = session.query(&format!("SELECT pg_relation_size('{table}')")).unwrap();
        let real: f64 = real[0][0].as_ref().unwrap().parse().unwrap();
        assert!((0.66..1.5).contains(&(estimated / real)), "{table}: {estimated} and {real}");
    }
}

fn measured_speeds_leave_nothing_behind(major: u32) {
    let trigger = "CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS \
        'BEGIN RAISE EXCEPTION ''no table may be made''; END';
        CREATE EVENT TRIGGER refuse ON ddl_command_start EXECUTE FUNCTION refuse();";
    let bench = Bench::new(major, trigger);
    let mut session = bench.laboratory.session(bench.laboratory.migrated_database()).unwrap();
    let speeds = Speeds::measure(&mut session).unwrap();
    let all = [
        speeds.scan_page,
        speeds.scan_row,
        speeds.rewrite_page,
        speeds.rewrite_row,
        speeds.sort_number,
        speeds.sort_text,
        speeds.reference_row,
        speeds.update_row,
        speeds.index_entry,
    ];
    assert!(all.iter().all(|time| *time > 0.0 && time.is_finite()), "{speeds:?}");
    let left = "SELECT count(*) FROM pg_namespace WHERE nspname = 'pgfresh_speeds'";
    assert_eq!(session.query(left).unwrap(), [[Some("0".to_owned())]]);
    let role = session.query("SHOW session_replication_role").unwrap();
    assert_eq!(role, [[Some("origin".to_owned())]]);
}
