use std::time::Duration;

use plans::{RelationKind, RelationName};
use proptest::prelude::*;

use super::*;
use crate::{
    BrokenStatement, ChangedRows, LockMode, ObservedStatement, Prediction, RelationLock, Rewrite, TableScan,
};

/// Tables that existed before the migration.
const OLD: [&str; 4] = ["orders", "customers", "events_2", "totals"];

fn relation(name: &str) -> RelationName {
    RelationName { schema: "public".to_owned(), name: name.to_owned() }
}

/// Returns a statement with facts such as `AccessExclusive orders, scan orders, timeout 2, transaction 1`.
fn statement(index: usize, sql: &str, facts: &str) -> ReportedStatement {
    let mut observed = ObservedStatement {
        sql: sql.to_owned(),
        transaction: 1000 + index,
        tag: Some("OK".to_owned()),
        ..ObservedStatement::default()
    };
    let mut reported = ReportedStatement::default();
    for (fact, name) in facts.split(", ").filter_map(|fact| fact.split_once(' ')) {
        let rewrite = |kind, table| Rewrite { relation: relation(name), kind, table, is_emptied: false };
        match fact {
            "scan" => observed.scans.push(TableScan { relation: relation(name), scans: 1, rows: 0 }),
            "rewrite" => observed.rewrites.push(rewrite(RelationKind::Table, None)),
            "rebuild" => observed.rewrites.push(rewrite(RelationKind::Index, Some(relation(name)))),
            "timeout" => observed.lock_timeout = Some(Duration::from_secs(name.parse().unwrap())),
            "transaction" => observed.transaction = name.parse().unwrap(),
            "migration" => reported.migration = Some(name.to_owned()),
            "changes" => {
                observed
                    .changed
                    .push(ChangedRows { relation: relation("orders"), rows: name.parse().unwrap() });
            }
            "predicted" => reported.predicted = Some(Prediction { low: 0.0, high: name.parse().unwrap() }),
            "bookkeeping" => reported.is_bookkeeping = true,
            "breaks" => {
                let tests = vec!["test".to_owned()];
                let error = "no column".to_owned();
                reported.breaks.push(BrokenStatement { statement: name.to_owned(), tests, error });
            }
            "error" => {
                observed.tag = None;
                let message = String::new();
                observed.error = Some(pgwire::StatementError { sqlstate: name.to_owned(), message });
            }
            _ => {
                let mode = LockMode::from_catalog(&format!("{fact}Lock")).unwrap();
                let kind = match name {
                    "totals" => RelationKind::MaterializedView,
                    "events" => RelationKind::PartitionedTable,
                    _ => RelationKind::Table,
                };
                observed.locks.push(RelationLock { relation: relation(name), kind, mode });
            }
        }
    }
    ReportedStatement { observed, ..reported }
}

fn sizes() -> Vec<RelationSize> {
    let size = |name: &&str| RelationSize {
        database: String::new(),
        relation: relation(name),
        kind: RelationKind::Table,
        table: None,
        pages: 0,
        toast_pages: 0,
        rows: 0.0,
    };
    OLD.iter().chain(&["events"]).map(size).collect()
}

/// Returns the anchors of the advice for each statement.
fn anchors(statements: &[(&str, &str)], knows_suite: bool) -> Vec<String> {
    let statements: Vec<_> =
        statements.iter().enumerate().map(|(index, (sql, facts))| statement(index, sql, facts)).collect();
    let advice = advise(&statements, &sizes(), knows_suite);
    let anchors = |advice: Vec<StatementAdvice>| {
        advice.iter().map(|advice| advice.topic.anchor()).collect::<Vec<_>>().join(" ")
    };
    advice.into_iter().map(anchors).collect()
}

#[test]
fn observed_work_and_text_give_the_topic() {
    let locked = "AccessExclusive orders, timeout 2";
    let scans = format!("{locked}, scan orders");
    let scans = scans.as_str();
    let rewrites = format!("{scans}, rewrite orders, rebuild orders");
    let rewrites = rewrites.as_str();
    let shares = "Share orders, timeout 2, scan orders";
    for (sql, facts, topics) in [
        ("ALTER TABLE orders ALTER COLUMN total SET DATA TYPE bigint", rewrites, "type-change"),
        ("ALTER TABLE orders ALTER note TYPE varchar(40)", locked, ""),
        ("ALTER TABLE orders ALTER total SET NOT NULL, ALTER note TYPE varchar(40)", scans, "not-null"),
        ("ALTER TABLE ONLY public.orders ALTER total SET NOT NULL", scans, "not-null"),
        ("ALTER TABLE orders ALTER total SET NOT NULL", locked, ""),
        ("ALTER TABLE orders ADD COLUMN IF NOT EXISTS a int NOT NULL", scans, "not-null"),
        ("ALTER TABLE orders ADD a int NOT NULL DEFAULT 0", locked, ""),
        ("ALTER TABLE orders ADD a uuid DEFAULT gen_random_uuid()", rewrites, "default"),
        ("ALTER TABLE orders ADD a bigserial", rewrites, "default"),
        ("ALTER TABLE orders ADD a int DEFAULT 0, ALTER total TYPE bigint", rewrites, "type-change"),
        ("ALTER TABLE orders ADD a int GENERATED ALWAYS AS (total * 2) STORED", rewrites, "generated-column"),
        ("ALTER TABLE orders ADD a positive", rewrites, "rewrite"),
        ("ALTER TABLE orders ADD a int CHECK (a > 0)", scans, "check-constraint"),
        ("ALTER TABLE orders ADD CONSTRAINT c CHECK (total > 0)", scans, "check-constraint"),
        ("ALTER TABLE orders ADD CHECK (total > 0) NOT VALID", locked, ""),
        ("ALTER TABLE orders ADD UNIQUE (total)", scans, "unique-constraint"),
        ("ALTER TABLE orders ADD EXCLUDE (total WITH =)", scans, "unique-constraint"),
        ("ALTER TABLE orders ADD CONSTRAINT u UNIQUE USING INDEX u", locked, ""),
        ("ALTER TABLE orders ADD PRIMARY KEY (id)", scans, "primary-key"),
        ("ALTER TABLE orders ADD PRIMARY KEY USING INDEX u", scans, "primary-key"),
        ("ALTER TABLE orders ADD FOREIGN KEY (total) REFERENCES customers", scans, "foreign-key"),
        ("ALTER TABLE orders ADD FOREIGN KEY (total) REFERENCES customers", locked, "foreign-key"),
        ("ALTER TABLE orders ADD FOREIGN KEY (total) REFERENCES customers NOT VALID", locked, ""),
        ("ALTER TABLE orders ADD a int REFERENCES customers", locked, ""),
        ("ALTER TABLE events ATTACH PARTITION orders DEFAULT", scans, "partition"),
        ("CREATE TABLE e PARTITION OF events DEFAULT", scans, "partition"),
        ("CREATE UNIQUE INDEX ON orders (total)", shares, "index"),
        ("CREATE INDEX i ON ONLY events (id)", "Share events, timeout 2", ""),
        ("REINDEX TABLE orders", shares, "index"),
        ("CLUSTER orders", rewrites, "rewrite"),
        ("ALTER TABLE orders DISABLE TRIGGER ALL", "ShareRowExclusive orders, timeout 2", "trigger"),
        ("ALTER DOMAIN positive ADD CHECK (VALUE < 9)", shares, "check-constraint"),
        ("REFRESH MATERIALIZED VIEW totals", "AccessExclusive totals, timeout 2", "materialized-view"),
        ("REFRESH MATERIALIZED VIEW CONCURRENTLY totals", "Exclusive totals, scan orders", ""),
        ("CREATE EXTENSION citext", "", "extension"),
        ("CREATE EXTENSION IF NOT EXISTS citext", "", ""),
        ("DROP EXTENSION citext CASCADE", locked, "extension"),
        ("SELECT * FROM orders", "AccessShare orders, scan orders", ""),
    ] {
        assert_eq!(anchors(&[(sql, facts)], true), [topics], "{sql}");
    }
}

#[test]
fn small_tables_and_new_tables_get_none() {
    let sql = "ALTER TABLE orders ALTER total TYPE bigint";
    let facts = "AccessExclusive orders, timeout 2, rewrite orders, scan orders";
    assert_eq!(anchors(&[(sql, &format!("{facts}, predicted 0.05"))], true), [""]);
    assert_eq!(anchors(&[(sql, &format!("{facts}, predicted 3"))], true), ["type-change"]);
    let facts = "AccessExclusive items, scan items, rewrite items";
    assert_eq!(anchors(&[("ALTER TABLE items ALTER total TYPE bigint", facts)], true), [""]);
    // The migration can move a name from an old table to a new one.
    let renamed = [
        ("ALTER TABLE orders RENAME TO purchases", "AccessExclusive orders, timeout 2"),
        ("CREATE VIEW orders AS SELECT * FROM purchases", ""),
        ("CREATE TABLE customers_2 ()", ""),
        ("ALTER TABLE purchases ALTER a TYPE int", "AccessExclusive purchases, timeout 2, rewrite purchases"),
        ("ALTER TABLE orders ALTER a TYPE int", "AccessExclusive orders, rewrite orders"),
    ];
    assert_eq!(anchors(&renamed, true), ["", "", "", "type-change", ""]);
}

#[test]
fn rows_that_violate_are_named_first() {
    let statements = [statement(0, "ALTER TABLE orders ALTER total SET NOT NULL", "error 23502")];
    let advice = advise(&statements, &sizes(), true);
    let [only] = advice[0].as_slice() else { panic!("{advice:?}") };
    assert_eq!(only.topic, AdviceTopic::NotNull);
    assert_eq!(only.danger, "fails, because rows violate it");
    assert!(only.instead.starts_with("change those rows first"), "{}", only.instead);
}

#[test]
fn danger_names_work_and_what_is_blocked() {
    let danger = |sql: &str, facts: &str| {
        advise(&[statement(0, sql, facts)], &sizes(), true)[0]
            .first()
            .map(|advice| advice.danger.clone())
            .unwrap()
    };
    let facts =
        "AccessExclusive orders, timeout 2, rewrite orders, rebuild orders, rebuild orders, scan orders";
    assert_eq!(
        danger("ALTER TABLE orders ALTER total TYPE bigint", facts),
        "converts the column in all rows or indexes while reads and writes wait"
    );
    let facts =
        "ShareRowExclusive orders, ShareRowExclusive customers, timeout 2, scan orders, scan customers";
    assert_eq!(
        danger("ALTER TABLE orders ADD FOREIGN KEY (a) REFERENCES customers", facts),
        "checks all rows while writes wait"
    );
    assert_eq!(
        danger("CREATE INDEX ON orders (total)", "Share orders, timeout 2, scan orders"),
        "builds it from all rows while writes wait"
    );
}

#[test]
fn old_code_counts_unless_the_suite_is_known() {
    let facts = "AccessExclusive orders, timeout 2";
    for (sql, topics) in [
        ("ALTER TABLE orders DROP COLUMN IF EXISTS note", "column-drop"),
        ("ALTER TABLE orders RENAME note TO remark", "column-rename"),
        ("ALTER TABLE orders RENAME TO purchases", "table-rename"),
        ("ALTER TABLE orders SET SCHEMA archive", "table-rename"),
        ("DROP TABLE IF EXISTS items, orders", "table-drop"),
        ("ALTER TYPE state RENAME VALUE 'new' TO 'fresh'", "enum"),
        ("ALTER TYPE state ADD VALUE 'lost'", ""),
        ("ALTER TABLE orders RENAME CONSTRAINT a TO b", ""),
        ("ALTER TABLE orders DROP CONSTRAINT a", ""),
        ("DROP VIEW recent", ""),
    ] {
        assert_eq!(anchors(&[(sql, facts)], false), [topics], "{sql}");
        assert_eq!(anchors(&[(sql, facts)], true), [""], "{sql}");
    }
    let broken = format!("{facts}, breaks SELECT note FROM orders");
    assert_eq!(anchors(&[("ALTER TABLE orders DROP note", &broken)], true), ["column-drop"]);
    assert_eq!(anchors(&[("DROP VIEW recent", &broken)], true), ["old-code"]);
    let swap = [
        ("ALTER TABLE orders ADD COLUMN total_new bigint", "AccessExclusive orders, timeout 2"),
        ("ALTER TABLE orders RENAME total TO total_old", "AccessExclusive orders, timeout 2, transaction 1"),
        ("ALTER TABLE orders RENAME total_new TO total", "timeout 2, transaction 1"),
    ];
    assert_eq!(anchors(&swap, false), ["", "", ""]);
    assert_eq!(anchors(&swap[1..], false), ["", "column-rename"]);
}

#[test]
fn backfill_is_an_unbounded_change() {
    let facts = "RowExclusive orders, scan orders";
    for (sql, topics) in [
        ("UPDATE orders SET total = 1", "backfill"),
        ("UPDATE ONLY public.orders o SET total = 1 WHERE total IS NULL", "backfill"),
        ("UPDATE orders SET n = c.n FROM customers c WHERE c.id = orders.customer_id", "backfill"),
        ("UPDATE orders SET total = 1 WHERE id <= 100 OR total <> 5", "backfill"),
        ("UPDATE orders SET total = 1 WHERE id > 100 AND id <= 200", ""),
        ("UPDATE orders SET total = 1 WHERE id BETWEEN $1 AND $2", ""),
        ("UPDATE orders SET total = 1 WHERE id = ANY($1)", ""),
        ("UPDATE orders SET total = 1 WHERE id IN (1, 2)", ""),
        (
            "WITH b AS (SELECT id FROM orders LIMIT 9) UPDATE orders SET a = 1 FROM b WHERE b.id = orders.id",
            "",
        ),
        ("DELETE FROM orders WHERE total IS NULL", "backfill"),
        ("DO $x$ BEGIN UPDATE orders SET total = 1; END $x$", "backfill"),
        ("DO 'BEGIN UPDATE orders SET total = 1; COMMIT; END'", ""),
        ("UPDATE items SET a = 1", ""),
    ] {
        assert_eq!(anchors(&[(sql, facts)], true), [topics], "{sql}");
    }
    let many = [("UPDATE orders SET total = 1 WHERE status = 'new'", "RowExclusive orders, changes 20000")];
    assert_eq!(anchors(&many, true), ["backfill"]);
    let batch = "UPDATE orders SET total = 1 WHERE id BETWEEN 1 AND 9";
    let facts = "RowExclusive orders, scan orders, transaction 1";
    assert_eq!(anchors(&[(batch, facts), (batch, facts)], true), ["", "backfill"]);
}

#[test]
fn missing_lock_timeout_is_said_once_a_migration() {
    let facts = |migration: &str| format!("AccessExclusive orders, migration {migration}");
    let sql = "ALTER TABLE orders ADD COLUMN a int";
    assert_eq!(
        anchors(&[(sql, &facts("1")), (sql, &facts("1")), (sql, &facts("2"))], true),
        ["lock-timeout", "", "lock-timeout"]
    );
    assert_eq!(anchors(&[(sql, "AccessExclusive orders, timeout 600")], true), ["lock-timeout"]);
    for (sql, facts) in [
        (sql, "AccessExclusive items"),
        (sql, "AccessExclusive orders, timeout 5"),
        ("ALTER TABLE orders VALIDATE CONSTRAINT c", "ShareUpdateExclusive orders, scan orders"),
        ("CREATE INDEX CONCURRENTLY ON orders (total)", "ShareUpdateExclusive orders"),
        ("INSERT INTO orders VALUES (1)", "RowExclusive orders"),
    ] {
        assert_eq!(anchors(&[(sql, facts)], true), [""], "{sql}");
    }
}

#[test]
fn work_under_held_locks_belongs_elsewhere() {
    let add = (
        "ALTER TABLE orders ADD CHECK (a > 0) NOT VALID",
        "AccessExclusive orders, timeout 2, transaction 1",
    );
    let validate = ("ALTER TABLE orders VALIDATE CONSTRAINT c", "scan orders, timeout 2, transaction 1");
    assert_eq!(anchors(&[add, validate], true), ["", "one-transaction"]);
    let alone = ("ALTER TABLE orders VALIDATE CONSTRAINT c", "ShareUpdateExclusive orders, scan orders");
    assert_eq!(anchors(&[add, alone], true), ["", ""]);

    let other = |timeout| format!("AccessExclusive customers, transaction 1{timeout}");
    let second = "ALTER TABLE customers ADD COLUMN a int";
    assert_eq!(anchors(&[add, (second, &other(""))], true), ["", "one-transaction"]);
    assert_eq!(anchors(&[add, (second, &other(", timeout 2"))], true), ["", ""]);
    assert_eq!(anchors(&[("VACUUM orders", "error 25001")], true), ["one-transaction"]);
}

#[test]
fn triggers_depend_on_their_transaction() {
    let disable = "ALTER TABLE orders DISABLE TRIGGER ALL";
    assert_eq!(anchors(&[(disable, "ShareRowExclusive orders")], true), ["trigger lock-timeout"]);
    let create = "CREATE TRIGGER t BEFORE UPDATE ON orders EXECUTE FUNCTION f()";
    assert_eq!(anchors(&[(create, "ShareRowExclusive orders")], true), ["trigger"]);
    assert_eq!(anchors(&[(create, "ShareRowExclusive orders, timeout 2")], true), [""]);
    let replaced = [
        ("DROP TRIGGER IF EXISTS t ON orders", "AccessExclusive orders, timeout 2, transaction 1"),
        (create, "timeout 2, transaction 1"),
    ];
    assert_eq!(anchors(&replaced, true), ["", "trigger"]);
}

#[test]
fn failed_statements_name_their_cause() {
    for (sql, facts, topics) in [
        ("CREATE INDEX CONCURRENTLY i ON events (id)", "error 0A000", "index"),
        ("CREATE UNIQUE INDEX CONCURRENTLY i ON orders (id)", "error 23505", "index"),
        ("CREATE INDEX CONCURRENTLY i ON orders (id)", "error 25001", "one-transaction"),
        ("UPDATE orders SET status = 'lost'", "error 55P04", "enum"),
        ("INSERT INTO orders VALUES (1)", "error 23505", ""),
        ("ALTER TABLE orders DROP note", "error 42703", ""),
    ] {
        assert_eq!(anchors(&[(sql, facts)], false), [topics], "{sql}");
    }
}

#[test]
fn anchors_are_unique() {
    let anchors: HashSet<_> = AdviceTopic::ALL.into_iter().map(AdviceTopic::anchor).collect();
    assert_eq!(anchors.len(), AdviceTopic::ALL.len());
}

#[test]
fn bookkeeping_gets_none() {
    let truncate = ("TRUNCATE orders", "AccessExclusive orders, bookkeeping yes, transaction 1");
    let index = ("CREATE INDEX ON orders (total)", "scan orders, Share orders, timeout 2, transaction 1");
    assert_eq!(anchors(&[truncate, index], true), ["", "index"]);
}

#[test]
fn dropped_default_of_required_column_is_found() {
    let facts = "AccessExclusive orders, timeout 2";
    let drop = ("ALTER TABLE \"orders\" ALTER COLUMN \"a\" DROP DEFAULT", facts);
    let add = "ALTER TABLE \"orders\" ADD COLUMN \"a\" integer DEFAULT 0 NOT NULL";
    assert_eq!(anchors(&[(add, facts), drop], false), ["", "not-null"]);
    assert_eq!(anchors(&[(add, facts), drop], true), ["", ""]);
    let nullable = "ALTER TABLE \"orders\" ADD COLUMN \"a\" integer DEFAULT 0";
    assert_eq!(anchors(&[(nullable, facts), drop], false), ["", ""]);
}

proptest! {
    /// The parser accepts any text, including one that a client cut off.
    #[test]
    fn any_text_is_read(words in prop::collection::vec(prop::sample::select(&[
        "alter", "table", "only", "orders", "add", "column", "constraint", "check", "(", ")", ",", ".", "drop", "default",
        "rename", "to", "create", "index", "on", "concurrently", "do", "$$", "$x$", "'", "é", "update", "where", "=", "<", "1",
        "with", "delete", "from", "between", "trigger", "extension", "not", "valid", "null", "\"", "E'", "[", ";",
    ][..]), 0..20), transaction in 0..2) {
        let sql = words.join(" ");
        let facts = format!("AccessExclusive orders, scan orders, transaction {transaction}");
        let statements = [statement(0, &sql, &facts), statement(1, &words.concat(), &facts)];
        prop_assert_eq!(advise(&statements, &sizes(), false).len(), 2);
    }
}

#[test]
fn conversions_without_rewrites_assume_utc() {
    let sql = "ALTER TABLE orders ALTER created TYPE timestamptz";
    let assumptions = |sql, facts| fact_assumptions(&[statement(0, sql, facts)]).len();
    assert_eq!(assumptions(sql, "AccessExclusive orders"), 1);
    assert_eq!(assumptions(sql, "AccessExclusive orders, rewrite orders"), 0);
    assert_eq!(assumptions("ALTER TABLE orders ALTER note TYPE text", "AccessExclusive orders"), 0);
}

#[test]
fn partitioned_tables_get_their_own_unique_advice() {
    let instead = |table: &str| {
        let sql = format!("ALTER TABLE {table} ADD CONSTRAINT k UNIQUE (id)");
        let facts = format!("AccessExclusive {table}, scan {table}, timeout 2");
        advise(&[statement(0, &sql, &facts)], &sizes(), true)[0][0].instead.clone()
    };
    assert!(instead("events").contains("ATTACH PARTITION"));
    assert!(!instead("orders").contains("ATTACH PARTITION"));
}
