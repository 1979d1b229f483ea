//! Tests that `run --plans` records the statements of any client: in all protocol variants, with
//! values, settings and tests.

use std::fs;

use serde_json::{Value, json};
use tokio_postgres::NoTls;

use super::suite::{Suite, plan, shapes};
use crate::common::{collect, on_every_major, wait_until};
use crate::gateway::drivers::installed;

on_every_major! {
    statements_of_every_form_are_explained
    binary_values_of_drivers_are_explained
}

fn unexplained(report: &Value) -> &Value {
    &report["plan_facts"]["unexplained"]
}

fn statements_of_every_form_are_explained(major: u32) {
    let suite = Suite::new(major);
    let script = r"
        $psql -d one -c 'BEGIN; SELECT note FROM orders WHERE id = 1; COMMIT' \
            -c 'SET search_path TO shop' -c 'SELECT price FROM items WHERE price = 5'
        $pgfresh release one --test test_one
        $psql -d two -c 'SELECT  note FROM orders WHERE id = 2' \
            -c 'BEGIN; DECLARE c CURSOR FOR SELECT id FROM orders WHERE id > 40; FETCH 1 FROM c; COMMIT' \
            -c 'COPY (SELECT customer_id FROM orders) TO STDOUT' -c 'PREPARE p AS SELECT 1' -c 'EXECUTE p' \
            -c 'CREATE TABLE made (id int)' -c 'SELECT * FROM made'
        $psql -d two -c 'BEGIN; SAVEPOINT s; SET LOCAL enable_indexscan = off; SET LOCAL enable_bitmapscan = off; ROLLBACK TO s;
            SELECT price FROM shop.items WHERE id = 4; COMMIT'
        PGOPTIONS='-c search_path=shop' $psql -d two -c 'SELECT id FROM items WHERE id = 1'
        ! $psql -d two -c 'SELECT nonsense FROM orders'
    ";
    let report = suite.report(&[], script);
    let after_rollback = shapes(&report, "SELECT price FROM shop.items WHERE id = ?");
    assert_eq!(after_rollback, r#"[["Index Scan using items_pkey on shop.items"]]"#, "{report:#}");
    let by_id = plan(&report, "SELECT note FROM orders WHERE id = ?");
    assert_eq!((&by_id["runs"], &by_id["tests"]), (&json!(2), &json!(["test_one", "two"])), "{report:#}");
    assert_eq!(by_id["shapes"], json!([["Index Scan using orders_pkey on orders"]]));
    let items = shapes(&report, "SELECT price FROM items WHERE price = ?");
    assert!(items.contains("items_price") && items.contains("shop.items"), "{items}");
    assert!(shapes(&report, "SELECT id FROM items WHERE id = ?").contains("items_pkey"), "{report:#}");
    plan(&report, "SELECT id FROM orders WHERE id > ?");
    assert!(shapes(&report, "SELECT customer_id FROM orders").contains("Seq Scan on orders"), "{report:#}");
    let unexplained = unexplained(&report).as_array().unwrap();
    let causes: Vec<_> =
        unexplained.iter().map(|one| (&one["count"], one["example"].as_str().unwrap())).collect();
    assert_eq!(causes, [(&json!(1), "SELECT * FROM made")]);
    let unseen = report["plan_facts"]["unseen"].to_string();
    assert!(unseen.contains("1 run of statements that PostgreSQL does not plan"), "{unseen}");
    assert!(unseen.contains("1 run of EXECUTE"), "{unseen}");
    assert!(!report["plans"].to_string().contains("nonsense"), "{report:#}");
}

/// The Rust driver sends all values in binary format.
fn binary_values_of_drivers_are_explained(major: u32) {
    let suite = Suite::new(major);
    let script = r#"echo "$DATABASE_URL" >url.new; mv url.new url; while [ ! -e done ]; do sleep 0.02; done"#;
    let words = suite.words(&["--report", "out.json"], script);
    let mut command = suite.scene.pgfresh(words);
    let child =
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let url = suite.scene.directory.join("url");
    wait_until("the URL", || url.exists());
    query(fs::read_to_string(url).unwrap().trim());
    suite.scene.write("done", "");
    let outcome = collect(child);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    let report = suite.json("out.json");
    assert_eq!(unexplained(&report), &json!([]), "{report:#}");
    let by_id = "SELECT note FROM orders WHERE id = ? AND note <> ?";
    assert!(shapes(&report, by_id).contains("orders_pkey"), "{report:#}");
    assert_eq!(plan(&report, by_id)["runs"], 8);
}

fn query(url: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let statement = client.prepare("SELECT note FROM orders WHERE id = $1 AND note <> $2").await.unwrap();
        for id in 1..=8_i64 {
            client.query(&statement, &[&id, &"none"]).await.unwrap();
        }
        client.query("SELECT id FROM orders WHERE customer_id = ANY ($1)", &[&vec![1_i64, 2]]).await.unwrap();
        let nothing: Option<i64> = None;
        client.query("SELECT id FROM orders WHERE customer_id = $1", &[&nothing]).await.unwrap();
    });
}

const PYTHON: &str = r#"
import os, psycopg
with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
    with connection.cursor(binary=True) as cursor:
        for number in range(7):
            cursor.execute("SELECT id FROM orders WHERE customer_id = %b", (number,), prepare=True)
        cursor.executemany("INSERT INTO orders VALUES (%s, %s, %s)", [(n, n, "x") for n in range(10, 30)])
        with cursor.copy("COPY orders FROM STDIN") as copy:
            copy.write_row((40, 1, "copied"))
"#;

#[test]
fn python_batches_and_prepared_statements_are_explained() {
    for isolation in ["clone", "rollback"] {
        let suite = Suite::new(15);
        suite.scene.write("suite.py", PYTHON);
        let python = installed("python/bin/python");
        let script = format!("'{}' suite.py", python.display());
        let report = suite.report(&["--isolation", isolation], &script);
        assert_eq!(unexplained(&report), &json!([]), "{report:#}");
        let select = plan(&report, "SELECT id FROM orders WHERE customer_id = ?");
        assert_eq!((&select["runs"], &select["table"]), (&json!(7), &json!("orders")), "{report:#}");
        assert_eq!(plan(&report, "INSERT INTO orders VALUES (?, …)")["runs"], 20, "{report:#}");
    }
}
