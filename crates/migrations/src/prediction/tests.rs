use super::*;
use crate::{RelationLock, RelationSize, Rewrite, TableRows, TableScan, TemplateTables};

const SPEEDS: Speeds = Speeds {
    scan_page: 1e-6,
    scan_row: 1e-7,
    rewrite_page: 1e-5,
    rewrite_row: 1e-6,
    sort_number: 1e-8,
    sort_text: 3e-8,
    reference_row: 2e-7,
    update_row: 1e-6,
    index_entry: 1e-6,
};

fn name(name: &str) -> RelationName {
    RelationName { schema: "public".to_owned(), name: name.to_owned() }
}

fn size(relation: &str, pages: u64, rows: f64) -> RelationSize {
    RelationSize {
        database: "app".to_owned(),
        relation: name(relation),
        kind: RelationKind::Table,
        table: None,
        pages,
        toast_pages: 0,
        rows,
    }
}

/// Returns production sizes with a hundred times as many orders and customers as the template, and an unknown number of
/// events.
fn production() -> Production {
    let sizes = [size("orders", 1000, 1e5), size("customers", 100, 1e4), size("events", 100, 1e4)];
    let rows = ["orders=10M", "customers=1M"].map(|rows| rows.parse::<TableRows>().unwrap());
    Production::new(&TemplateTables::default(), &sizes, None, &rows).unwrap()
}

/// Returns a statement that ran for 10 ms and did `scans`.
fn statement(sql: &str, scans: &[(&str, u64)]) -> ObservedStatement {
    let scan = |(table, scans): &(&str, u64)| TableScan { relation: name(table), scans: *scans, rows: 0 };
    ObservedStatement {
        database: "app".to_owned(),
        sql: sql.to_owned(),
        tag: Some("ALTER TABLE".to_owned()),
        seconds: 0.01,
        held_seconds: 0.01,
        scans: scans.iter().map(scan).collect(),
        ..ObservedStatement::default()
    }
}

fn predict_one(statement: ObservedStatement) -> Option<Prediction> {
    let observations = Observations { statements: vec![statement], ..Observations::default() };
    predict(&observations, &production(), &SPEEDS).pop().unwrap()
}

fn rewrite(relation: &str, table: Option<&str>) -> Rewrite {
    Rewrite {
        relation: name(relation),
        kind: if table.is_some() { RelationKind::Index } else { RelationKind::Table },
        table: table.map(name),
        is_emptied: false,
    }
}

#[test]
fn statements_without_scans_have_no_prediction() {
    assert_eq!(predict_one(statement("ALTER TABLE orders ADD a int", &[])), None);
    assert_eq!(predict_one(statement("UPDATE orders SET a = 1 WHERE id = 5", &[])), None);
    let emptied = Rewrite { is_emptied: true, ..rewrite("orders", None) };
    let index = Rewrite { is_emptied: true, ..rewrite("orders_pkey", Some("orders")) };
    let truncate = ObservedStatement { rewrites: vec![emptied, index], ..statement("TRUNCATE orders", &[]) };
    assert_eq!(predict_one(truncate), None);
}

#[test]
fn failed_statements_have_no_prediction() {
    let sql = "ALTER TABLE orders ADD CHECK (a > 0)";
    let error = pgwire::StatementError { sqlstate: "23514".to_owned(), message: String::new() };
    assert_eq!(
        predict_one(ObservedStatement { error: Some(error), ..statement(sql, &[("orders", 1)]) }),
        None
    );
    assert_eq!(
        predict_one(ObservedStatement { is_unfinished: true, ..statement(sql, &[("orders", 1)]) }),
        None
    );
}

#[test]
fn scans_cost_pages_and_rows() {
    let range = predict_one(statement("ALTER TABLE orders ALTER a SET NOT NULL", &[("orders", 1)])).unwrap();
    // 100,000 pages and 10 million rows take 1.1 s in memory, and the disk adds 3.3 s.
    assert!(range.low < 1.1 && range.low > 0.5, "{range}");
    assert!(range.high > 1.1 + 3.2 && range.high < 6.0, "{range}");
}

#[test]
fn more_work_takes_more_time() {
    let check = predict_one(statement("ALTER TABLE orders ADD CHECK (a > 0)", &[("orders", 1)])).unwrap();
    let twice = predict_one(statement("ALTER TABLE orders ADD CHECK (a > 0)", &[("orders", 2)])).unwrap();
    let index = predict_one(statement("CREATE INDEX ON orders (status)", &[("orders", 1)])).unwrap();
    let table = statement("ALTER TABLE orders ALTER id TYPE bigint", &[("orders", 2)]);
    let one = ObservedStatement { rewrites: vec![rewrite("orders", None)], ..table.clone() };
    let both = vec![rewrite("orders", None), rewrite("orders_pkey", Some("orders"))];
    let both = ObservedStatement { rewrites: both, ..table };
    let (one, both) = (predict_one(one).unwrap(), predict_one(both).unwrap());
    for (less, more) in [(check, twice), (check, index), (check, one), (one, both)] {
        assert!(less.low < more.low && less.high < more.high, "{less}, {more}");
    }
}

#[test]
fn replaced_keys_are_built_once() {
    let sql = "ALTER TABLE orders ADD PRIMARY KEY (id)";
    let new = predict_one(statement(sql, &[("orders", 1)]));
    let rewrites = vec![rewrite("orders_pkey", Some("orders"))];
    let replaced = ObservedStatement { rewrites, ..statement(sql, &[("orders", 1)]) };
    assert_eq!(predict_one(replaced), new);
}

#[test]
fn foreign_keys_count_tables_of_empty_templates() {
    let sql = "ALTER TABLE orders ADD FOREIGN KEY (a) REFERENCES customers";
    let lock = |table: &str| RelationLock {
        relation: name(table),
        kind: RelationKind::Table,
        mode: LockMode::ShareRowExclusive,
    };
    let skipped = ObservedStatement {
        locks: vec![lock("customers"), lock("orders")],
        ..statement(sql, &[("orders", 1)])
    };
    let seen = statement(sql, &[("customers", 1), ("orders", 1)]);
    assert_eq!(predict_one(skipped), predict_one(seen));
    let unchecked = statement(&format!("{sql} NOT VALID"), &[]);
    assert_eq!(predict_one(unchecked), None);
}

#[test]
fn updates_change_the_same_fraction_of_rows() {
    let update = |sql: &str, tag: &str| {
        let update = ObservedStatement { tag: Some(tag.to_owned()), ..statement(sql, &[("orders", 1)]) };
        predict_one(update).unwrap()
    };
    let all = update("UPDATE orders SET a = 1", "UPDATE 100000");
    let some = update("UPDATE orders SET a = 1 WHERE b", "UPDATE 1000");
    let none = update("UPDATE orders SET a = 1 WHERE b", "UPDATE 0");
    let unknown = update("UPDATE orders SET a = 1 WHERE b", "UPDATE");
    assert!(all.low > 2.0 * some.low && some.low > none.low, "{all}, {some}, {none}");
    assert!(unknown.low <= none.low && unknown.high >= all.high, "{unknown}");
}

#[test]
fn tables_of_unknown_size_have_no_prediction() {
    let statement = statement("CREATE INDEX ON events (a)", &[("events", 1)]);
    assert_eq!(predict_one(statement.clone()), None);
    let observations = Observations { statements: vec![statement], ..Observations::default() };
    let sentence = unpredicted(&observations, &production()).unwrap();
    assert_eq!(sentence, "Production's size of events is unknown, so its statements have no prediction.");
    assert_eq!(unpredicted(&Observations::default(), &production()), None);
}

#[test]
fn slow_statements_are_scaled_by_their_own_time() {
    let quick = statement("ALTER TABLE orders ADD CHECK (slow(a))", &[("orders", 1)]);
    let slow = ObservedStatement { seconds: 5.0, ..quick.clone() };
    let (quick, slow) = (predict_one(quick).unwrap(), predict_one(slow).unwrap());
    // A hundred times as many rows take a hundred times as long.
    assert!(
        quick.high < 100.0 && slow.low > 100.0 && slow.low <= 500.0 && slow.high >= 500.0,
        "{quick}, {slow}"
    );
}

#[test]
fn locks_are_held_until_the_transaction_ends() {
    let mut statements = vec![
        statement("ALTER TABLE customers ADD a int", &[]),
        statement("ALTER TABLE orders ADD CHECK (a > 0)", &[("orders", 1)]),
        statement("COMMIT", &[]),
        statement("ALTER TABLE orders ADD b int", &[]),
    ];
    statements[3].transaction = 1;
    statements[0].held_seconds = 0.05;
    let observations = Observations { statements, ..Observations::default() };
    let predicted = predict(&observations, &production(), &SPEEDS);
    let range = predicted[1].unwrap();
    let held = predict_held(&observations, &predicted);
    // The tool's own 40 ms aren't scaled.
    let first = held[0].unwrap();
    assert!((first.low - range.low - 0.04).abs() < 1e-9 && (first.high - range.high - 0.04).abs() < 1e-9);
    assert_eq!((held[1], held[2], held[3]), (Some(range), None, None));
}
