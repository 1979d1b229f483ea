//! Tests that pgfresh finds the suite's statements that a migration breaks, and the migration statement
//! that breaks each of them.

use std::collections::BTreeMap;

use migrations::ObservedStatement;
use migrations::suite::broken;
use plans::SuiteStatement;

use super::blocking::{Database, SCHEMA, begin, names, suite};
use crate::common::on_every_major;

on_every_major! {
    statements_that_a_migration_breaks_are_found
}

/// Statements in a migration. No statement undoes another.
const MIGRATION: [&str; 18] = [
    "ALTER TABLE orders ADD COLUMN status_id bigint",
    "ALTER TABLE orders DROP COLUMN note",
    "ALTER TABLE orders RENAME COLUMN customer_id TO buyer_id",
    "ALTER TABLE drafts RENAME TO sketches",
    "DROP TABLE refunds",
    "ALTER TABLE customers ADD COLUMN region text NOT NULL DEFAULT 'north'",
    "ALTER TABLE customers ALTER COLUMN region DROP DEFAULT",
    "ALTER TABLE products ADD COLUMN price bigint NOT NULL DEFAULT 0",
    "DROP INDEX products_code",
    "ALTER TYPE mood RENAME VALUE 'bad' TO 'sad'",
    "DROP FUNCTION count_orders()",
    "ALTER TABLE lines ALTER COLUMN amount TYPE text",
    "REVOKE SELECT ON people FROM reader",
    "ALTER TABLE archive ALTER COLUMN note SET NOT NULL",
    "ALTER TABLE letters ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY",
    "ALTER TABLE clicks DROP COLUMN event_at",
    "DROP SEQUENCE numbers",
    "DROP VIEW open_orders",
];

/// Suite statements that break, each with the index of the migration statement that breaks it
/// and a part of the error.
const BROKEN: [(&str, usize, &str); 18] = [
    ("SELECT note FROM orders", 1, "column \"note\" does not exist"),
    (
        "INSERT INTO orders (id, note) VALUES (1, 'a')",
        1,
        "column \"note\" of relation \"orders\" does not exist",
    ),
    ("UPDATE orders o SET status = 'x' WHERE o.customer_id = 1", 2, "column o.customer_id does not exist"),
    ("SELECT id FROM drafts", 3, "relation \"drafts\" does not exist"),
    ("DELETE FROM refunds", 4, "relation \"refunds\" does not exist"),
    ("COPY refunds FROM STDIN", 4, "relation \"refunds\" does not exist"),
    ("COPY customers (id, name) FROM STDIN", 6, "null value in column \"region\""),
    ("INSERT INTO customers (id, name) VALUES (9, 'a'), (10, 'b')", 6, "null value in column \"region\""),
    (
        "INSERT INTO products (id, code) VALUES (1, 'a') ON CONFLICT (code) DO NOTHING",
        8,
        "no unique or exclusion constraint matching the ON CONFLICT",
    ),
    ("SELECT id FROM people WHERE mood = 'bad'", 9, "invalid input value for enum mood: \"bad\""),
    ("SELECT count_orders()", 10, "function count_orders() does not exist"),
    ("SELECT id FROM lines WHERE amount > 5", 11, "operator does not exist: text > integer"),
    ("SELECT mood FROM people", 12, "permission denied for table people"),
    (
        "INSERT INTO archive SELECT id FROM products",
        13,
        "null value in column \"note\" of relation \"archive\"",
    ),
    ("INSERT INTO letters VALUES (1, 'a')", 14, "into column \"id\""),
    ("INSERT INTO clicks VALUES (1, '2026-01-01')", 15, "INSERT has more expressions than target columns"),
    ("SELECT nextval('numbers')", 16, "relation \"numbers\" does not exist"),
    ("SELECT count(*) FROM open_orders", 17, "relation \"open_orders\" does not exist"),
];

/// Suite statements that work both before and after the migration, or neither before nor after.
const OTHERS: &str = "SELECT * FROM orders; SELECT nonsense FROM orders; INSERT INTO archive VALUES (1, 'a'); \
     INSERT INTO archive (note, id) SELECT 'a', 1; INSERT INTO products (id, code) VALUES (1, 'a'); SELECT mood FROM people LIMIT 1; \
     INSERT INTO products (id) VALUES (1); UPDATE archive SET note = 'a'; SELECT id FROM people WHERE mood = 'good'; \
     INSERT INTO letters (title) VALUES ('a') RETURNING title; WITH x AS (DELETE FROM lines) SELECT 1; \
     COPY archive FROM STDIN; COPY archive (note, id) FROM STDIN; COPY orders TO STDOUT";

fn statements_that_a_migration_breaks_are_found(major: u32) {
    let database = Database::new(major, SCHEMA);
    database.open("postgres").query("CREATE DATABASE migrated TEMPLATE shop").unwrap();
    let mut migrated = database.open("migrated");
    let mut observed = Vec::new();
    for sql in MIGRATION {
        let names = names(&mut migrated);
        let locked = begin(&mut migrated, sql, &names);
        migrated.query("COMMIT").unwrap();
        let tag = sql.split(' ').take(2).collect::<Vec<_>>().join(" ");
        observed.push(ObservedStatement { tag: Some(tag), ..locked });
    }
    let breaking: Vec<_> = BROKEN.iter().map(|(sql, ..)| *sql).collect();
    let mut statements = suite(&format!("{}; {OTHERS}", breaking.join("; ")));
    for statement in &mut statements {
        set_role(statement);
    }
    let found = broken(&mut database.session(), &mut migrated, &statements, &observed).unwrap();
    let mut found: BTreeMap<_, _> = found
        .iter()
        .map(|(index, broken)| (broken.statement.as_str(), (*index, broken.error.as_str())))
        .collect();
    for (sql, expected, message) in BROKEN {
        let (index, error) = found.remove(sql).unwrap_or_else(|| panic!("{sql} is not among {found:?}"));
        assert!(error.contains(message), "{sql}: {error}");
        assert_eq!(index, Some(expected), "{sql}: {error}");
    }
    assert!(found.is_empty(), "{found:?}");
}

/// Makes statements about `people` run as a different role.
fn set_role(suite: &mut SuiteStatement) {
    if suite.statement.text == "SELECT mood FROM people" {
        suite.statement.settings.push(("role".to_owned(), "reader".to_owned()));
    }
}
