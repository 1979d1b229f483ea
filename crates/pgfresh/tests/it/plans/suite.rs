//! Runs a suite under `pgfresh run --plans`: the template is a small shop, and the statistics are
//! those of a large shop.

use std::fs;

use serde_json::{Value, json};

use crate::common::{Outcome, Scene, User, postgres};

/// A shop's tables, in two schemas. There is no index on `orders.customer_id`.
const SCHEMA: &str = "CREATE TABLE orders (id bigint PRIMARY KEY, customer_id bigint, note text);
CREATE SCHEMA shop;
CREATE TABLE shop.items (id bigint PRIMARY KEY, price bigint);
CREATE INDEX items_price ON shop.items (price);
INSERT INTO orders VALUES (1, 7, 'first'), (2, 7, 'second');";

/// Scene with a template, and with statistics for 48 million orders and 9 million items in `production.json`.
pub(super) struct Suite {
    pub(super) scene: Scene,
    pub(super) major: u32,
}

impl Suite {
    pub(super) fn new(major: u32) -> Self {
        let scene = Scene::new(User::Ourselves);
        scene.write("schema.sql", SCHEMA);
        scene.write("production.json", &statistics().to_string());
        scene.write("pgfresh.toml", "[plans]\nstatistics = \"production.json\"\n");
        Self { scene, major }
    }

    /// Runs a shell script under `run --plans` with `options`. `$psql` is psql, and `$pgfresh` is pgfresh.
    pub(super) fn run(&self, options: &[&str], script: &str) -> Outcome {
        self.scene.run(self.words(options, script))
    }

    /// Returns the arguments for a run like [`Self::run`].
    pub(super) fn words(&self, options: &[&str], script: &str) -> Vec<String> {
        let (psql, pgfresh) = (crate::common::ground::psql(), crate::common::ground::program());
        let script =
            format!("psql='{psql} -XAtqv ON_ERROR_STOP=1'; pgfresh='{}'; {script}", pgfresh.display());
        let version = postgres(self.major);
        let first = ["run", "--sql", "schema.sql", "--postgres", &version, "--plans"];
        let words = [&first[..], options, &["--", "sh", "-euc", &script]].concat();
        words.into_iter().map(str::to_owned).collect()
    }

    /// Runs a script that must succeed, and returns the JSON report.
    pub(super) fn report(&self, options: &[&str], script: &str) -> Value {
        let outcome = self.run(&[options, &["--report", "out.json"]].concat(), script);
        assert_eq!(outcome.code, Some(0), "{outcome}");
        self.json("out.json")
    }

    pub(super) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.scene.directory.join(name)).unwrap()
    }

    pub(super) fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.read(name)).unwrap()
    }
}

fn statistics() -> Value {
    let column = |name: &str, type_name: &str, distinct: f64| {
        json!({
            "column": name, "type_name": type_name, "inherited": false, "null_fraction": 0.0, "width": 8,
            "distinct": distinct,
        })
    };
    let index = |schema: &str, table: &str, name: &str, rows: f64| {
        json!({
            "schema": schema, "name": name, "kind": "index", "pages": 131_072, "analyzed_pages": 131_072, "rows": rows,
            "all_visible": 0, "table": table, "height": 3,
        })
    };
    let table = |schema: &str, name: &str, rows: f64, columns: Value| {
        json!({
            "schema": schema, "name": name, "kind": "table", "pages": 524_288, "analyzed_pages": 524_288, "rows": rows,
            "all_visible": 0, "columns": columns,
        })
    };
    let orders = json!([
        column("id", "bigint", -1.0),
        column("customer_id", "bigint", 950_000.0),
        column("note", "text", -1.0)
    ]);
    let items = json!([column("id", "bigint", -1.0), column("price", "bigint", 1e6)]);
    json!({
        "format": 1, "server_version": 150_004, "taken": 1_795_132_800, "settings": {},
        "relations": [
            table("public", "orders", 48e6, orders),
            index("public", "orders", "orders_pkey", 48e6),
            table("shop", "items", 9e6, items),
            index("shop", "items", "items_pkey", 9e6),
            index("shop", "items", "items_price", 9e6),
        ],
    })
}

/// Returns the plan of the statement whose normalized text is `statement`.
pub(super) fn plan<'a>(report: &'a Value, statement: &str) -> &'a Value {
    let plans = report["plans"].as_array().unwrap();
    let plan = plans.iter().find(|plan| plan["statement"] == statement);
    plan.unwrap_or_else(|| panic!("no {statement}: {report:#}"))
}

/// Returns all lines of all plan shapes for a statement.
pub(super) fn shapes(report: &Value, statement: &str) -> String {
    plan(report, statement)["shapes"].to_string()
}
