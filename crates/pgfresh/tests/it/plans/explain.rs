//! Tests that `pgfresh explain` prints PostgreSQL's plans on standard output, and everything else on standard error.

use serde_json::{Value, json};

use crate::common::{Scene, User, postgres};

const SCHEMA: &str = "CREATE TABLE orders (id bigint PRIMARY KEY, customer bigint, status text);
CREATE INDEX orders_customer ON orders (customer);";

/// Returns statistics for 48 million rows in 4 GB.
fn statistics() -> String {
    let column = |name: &str, type_name: &str, distinct: f64| json!({ "column": name, "type_name": type_name, "inherited": false, "null_fraction": 0.0, "width": 8, "distinct": distinct });
    let index = |name: &str, height: u32| {
        json!({
            "schema": "public", "name": name, "kind": "index", "pages": 131_072, "analyzed_pages": 131_072, "rows": 48e6,
            "all_visible": 0, "table": "orders", "height": height,
        })
    };
    let table = json!({
        "schema": "public", "name": "orders", "kind": "table", "pages": 524_288, "analyzed_pages": 524_288, "rows": 48e6,
        "all_visible": 500_000,
        "columns": [column("id", "bigint", -1.0), column("customer", "bigint", 950_000.0), column("status", "text", 5.0)],
    });
    json!({
        "format": 1, "server_version": 150_004, "taken": 1_700_000_000, "settings": { "random_page_cost": "1.1" },
        "relations": [table, index("orders_pkey", 3), index("orders_customer", 3)],
    })
    .to_string()
}

fn scene() -> Scene {
    let scene = Scene::new(User::Ourselves);
    scene.write("schema.sql", SCHEMA);
    scene.write("production.json", &statistics());
    scene
}

const OPTIONS: [&str; 4] = ["explain", "--sql", "schema.sql", "--postgres"];

#[test]
fn plan_is_printed_as_postgresql_does() {
    let scene = scene();
    let explain = |more: &[&str]| scene.run([&OPTIONS, &[postgres(15).as_str()][..], more].concat());
    let statement = "SELECT * FROM orders WHERE customer = 7";
    let outcome = explain(&["--statistics", "production.json", statement]);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    let first = "Index Scan using orders_customer on orders  (cost=0.56..58.66 rows=51 width=24)";
    assert!(outcome.stdout.starts_with(first), "{outcome}");
    assert!(outcome.stdout.trim_end().ends_with("Index Cond: (customer = 7)"), "{outcome}");

    scene.write("pgfresh.toml", "[plans]\nstatistics = \"production.json\"\n");
    scene.write(
        "queries.sql",
        "SELECT * FROM orders WHERE status = $1;\n-- nothing;\nSELECT * FROM ordres;\nSELECT 1",
    );
    let outcome = explain(&["queries.sql"]);
    assert_eq!(outcome.code, Some(1), "{outcome}");
    assert!(
        outcome.stdout.contains("Filter: (status = $1)") && outcome.stdout.ends_with("width=4)\n"),
        "{outcome}"
    );
    assert!(outcome.stderr.contains("statement 2: relation \"ordres\" does not exist"), "{outcome}");
    assert!(outcome.stderr.contains("LINE 2: SELECT * FROM ordres\n                      ^"), "{outcome}");

    let outcome = explain(&["--json", "--generic", "SELECT * FROM orders WHERE id = $1"]);
    let value: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(value["statements"][0]["mode"], "generic");
    assert_eq!(value["statements"][0]["plan"][0]["Plan"]["Index Name"], "orders_pkey");
    assert_eq!(value["statistics"]["tables"], 1);
}

#[test]
fn findings_and_syntax_errors_are_printed() {
    let scene = scene();
    let explain = |text: &str| {
        let statistics = ["--statistics", "production.json", text];
        scene.run([&OPTIONS, &[postgres(15).as_str()][..], &statistics].concat())
    };
    let outcome = explain("SELECT id FROM orders WHERE status = 'new' AND customer > 5");
    assert_eq!(outcome.code, Some(0), "{outcome}");
    assert!(outcome.stdout.contains("Seq Scan on orders"), "{outcome}");
    assert!(
        outcome.stderr.contains("\nDETAIL:  The plan reads all 48 million rows of orders (4.29 GB)"),
        "{outcome}"
    );

    let misspelled = explain("SELECT 1; selec * FROM orders");
    assert_eq!(misspelled.code, Some(1), "{misspelled}");
    let expected = "statement 2: syntax error at or near \"selec\"\nDETAIL:  LINE 1: selec * FROM orders\n";
    assert!(misspelled.stderr.contains(expected), "{misspelled}");
    let utility = explain("VACUUM orders");
    assert!(utility.stderr.contains("PostgreSQL cannot explain utility statements"), "{utility}");
    let creation = explain("\u{feff}CREATE TABLE x (id int)");
    assert!(creation.stderr.contains("PostgreSQL cannot explain utility statements"), "{creation}");
}

#[test]
fn other_major_version_is_a_warning() {
    let scene = scene();
    for (version, expected) in [("150004", false), ("140009", true), ("0", false)] {
        scene.write("other.json", &statistics().replace("150004", version));
        let options = ["--statistics", "other.json", "--json", "SELECT 1"];
        let outcome = scene.run([&OPTIONS, &[postgres(15).as_str()][..], &options].concat());
        let warning = "pgfresh: production has PostgreSQL 14, but PostgreSQL 15 made these plans";
        assert_eq!(outcome.stderr.contains(warning), expected, "{outcome}");
    }
}

#[test]
fn statement_with_values_has_no_generic_plan() {
    let scene = scene();
    let options =
        ["--statistics", "production.json", "--json", "--generic", "SELECT * FROM orders WHERE id = 7"];
    let outcome = scene.run([&OPTIONS, &[postgres(15).as_str()][..], &options].concat());
    let value: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(value["statements"][0]["mode"], "custom", "{outcome}");
    assert!(outcome.stderr.contains("--generic changes nothing for 1 of 1 statements"), "{outcome}");
}

#[test]
fn explain_needs_statistics_and_a_statement() {
    let scene = scene();
    for (arguments, message) in [
        (vec!["explain", "SELECT 1"], "no production statistics are given"),
        (vec!["explain", "--statistics", "none.json", "SELECT 1"], "could not read \"none.json\""),
        (vec!["explain", "--statistics", "schema.sql", "SELECT 1"], "\"schema.sql\" has no valid statistics"),
        (vec!["explain", "--statistics", "production.json", "nothing.sql"], "could not read \"nothing.sql\""),
        (vec!["explain", "--statistics", "production.json", " ; "], "the input contains no SQL statement"),
    ] {
        let outcome = scene.run(&arguments);
        assert_eq!(outcome.code, Some(1), "{arguments:?}: {outcome}");
        assert!(outcome.stderr.contains(message), "{arguments:?}: {outcome}");
    }
}
