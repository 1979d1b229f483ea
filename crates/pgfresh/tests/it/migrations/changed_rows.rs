//! Tests that pgfresh counts the rows that a statement changes, however it changes them.

use migrations::testing::transcript_of;

use super::summary::Bench;
use crate::common::on_every_major;

const SCHEMA: &str = "
    CREATE TABLE orders (id int PRIMARY KEY, total int);
    CREATE TABLE items (id int PRIMARY KEY, order_id int REFERENCES orders ON DELETE CASCADE);
    CREATE TABLE empty (id int);
    CREATE TABLE events (id int, at int) PARTITION BY RANGE (at);
    CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM (0) TO (1000);
    CREATE TABLE events_2 PARTITION OF events FOR VALUES FROM (1000) TO (3000);
    CREATE VIEW order_totals AS SELECT * FROM orders;
    CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN UPDATE items SET order_id = order_id; RETURN NULL; END $$;
    CREATE TRIGGER touch AFTER UPDATE ON empty FOR EACH STATEMENT EXECUTE FUNCTION touch();
    INSERT INTO orders SELECT n, n FROM generate_series(1, 2000) n;
    INSERT INTO items SELECT n, n FROM generate_series(1, 2000) n;
    INSERT INTO events SELECT n, n FROM generate_series(1, 2000) n;";

on_every_major! {
    changes_are_counted_however_they_happen
    merged_rows_are_counted
}

/// Statements with the rows that they change.
const CHANGES: &[(&str, &str)] = &[
    ("UPDATE orders SET total = 0 WHERE id <= 1500", "orders 1500"),
    (
        "DO $$ BEGIN FOR n IN 0..3 LOOP UPDATE orders SET total = 1 WHERE id % 4 = n; END LOOP; END $$",
        "orders 2000",
    ),
    (
        "CREATE FUNCTION change() RETURNS void LANGUAGE sql AS 'UPDATE orders SET total = 2 WHERE id <= 1900'",
        "",
    ),
    ("SELECT change()", "orders 1900"),
    (
        "INSERT INTO orders SELECT n, n FROM generate_series(1001, 5000) n ON CONFLICT (id) DO UPDATE SET total = 3",
        "orders 1000",
    ),
    ("PREPARE p AS UPDATE orders SET total = 4 WHERE id <= 1200", ""),
    ("EXECUTE p", "orders 1200"),
    ("UPDATE order_totals SET total = 5 WHERE id <= 1300", "orders 1300"),
    ("UPDATE empty SET id = 1", "items 2000"),
    ("UPDATE events SET id = 1", "events_1 999; events_2 1001"),
    ("DO $$ BEGIN UPDATE orders SET total = 6 WHERE id <= 1400; COMMIT; END $$", "orders 1400"),
    (
        "DO $$ BEGIN UPDATE orders SET total = 7 WHERE id <= 700; COMMIT; \
         UPDATE orders SET total = 7 WHERE id BETWEEN 701 AND 1400; COMMIT; END $$",
        "orders 700",
    ),
    ("SET track_counts = off", ""),
    ("UPDATE orders SET total = 8 WHERE id <= 1100", "orders 1100"),
    ("DELETE FROM orders WHERE id > 500 AND id <= 2000", "items 1500; orders 1500"),
    ("TRUNCATE empty", ""),
];

fn observe(major: u32, statements: &[&str]) -> Vec<String> {
    let mut bench = Bench::new(major, SCHEMA);
    let observations = bench.laboratory.observe(&transcript_of(statements)).unwrap();
    bench.laboratory.stop().unwrap();
    let line = |one: &migrations::ObservedStatement| {
        let changed: Vec<_> =
            one.changed.iter().map(|one| format!("{} {}", one.relation, one.rows)).collect();
        changed.join("; ")
    };
    observations.statements.iter().map(line).collect()
}

fn changes_are_counted_however_they_happen(major: u32) {
    let (statements, expected): (Vec<&str>, Vec<&str>) = CHANGES.iter().copied().unzip();
    assert_eq!(observe(major, &statements), expected);
}

fn merged_rows_are_counted(major: u32) {
    if major < 15 {
        return;
    }
    let merge =
        "MERGE INTO items i USING orders o ON o.id = i.id WHEN MATCHED THEN UPDATE SET order_id = o.id";
    assert_eq!(observe(major, &[merge]), ["items 2000"]);
}
