//! Tests a plan baseline in a file for git.

use serde_json::json;

use super::suite::Suite;
use crate::common::on_every_major;

on_every_major! {
    changed_shapes_fail_and_name_both_plans
}

const BY_ID: &str = "$psql -d one -c 'SELECT note FROM orders WHERE id = 7'";
const BY_PRICE: &str = "$psql -d one -c 'SELECT id FROM shop.items WHERE price = 7'";

fn changed_shapes_fail_and_name_both_plans(major: u32) {
    let suite = Suite::new(major);
    let both = format!("{BY_ID}; {BY_PRICE}");
    let outcome = suite.run(&["--plans-baseline", "plans.json", "--update-baseline"], &both);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    assert!(
        outcome.stderr.contains("pgfresh: wrote the plans of 2 statements to \"plans.json\""),
        "{outcome}"
    );
    let baseline = suite.json("plans.json");
    assert_eq!((&baseline["postgres"], &baseline["statistics"]), (&json!(major), &json!("2026-11-20")));
    let by_id = &baseline["plans"]["SELECT note FROM orders WHERE id = ?"];
    assert_eq!(by_id, &json!(["Index Scan using orders_pkey on orders"]));

    // New and vanished statements don't make the run fail.
    let file = "[plans]\nstatistics = \"production.json\"\nbaseline = \"plans.json\"\n";
    suite.scene.write("pgfresh.toml", file);
    let outcome = suite.run(&["--report", "r.json"], &format!("{BY_ID}; $psql -d one -c 'SELECT 1'"));
    assert_eq!(outcome.code, Some(0), "{outcome}");
    let changes = &suite.json("r.json")["baseline"];
    assert_eq!(changes["new"][0]["statement"], "SELECT ?");
    assert_eq!(changes["vanished"][0]["statement"], "SELECT id FROM shop.items WHERE price = ?");
    assert_eq!(changes["changed"], json!([]));

    let schema = suite.read("schema.sql").replace("CREATE INDEX items_price ON shop.items (price);", "");
    suite.scene.write("schema.sql", &schema);
    let before = suite.read("plans.json");
    let outcome = suite.run(&[], &both);
    assert_eq!(outcome.code, Some(1), "{outcome}");
    let message = "pgfresh: 1 statement has a different plan than in \"";
    assert!(outcome.stderr.contains(message), "{outcome}");
    for line in ["items_price", "Seq Scan on shop.items", "1 test: one", "HINT:  If the new plans are right"]
    {
        assert!(outcome.stderr.contains(line), "{line}: {outcome}");
    }
    assert_eq!(suite.read("plans.json"), before);

    // A failed command doesn't update anything.
    let outcome = suite.run(&["--update-baseline"], &format!("{both}; exit 3"));
    assert_eq!((outcome.code, suite.read("plans.json")), (Some(3), before), "{outcome}");
    assert_eq!(suite.run(&["--update-baseline"], &both).code, Some(0));
    assert_eq!(suite.run(&[], &both).code, Some(0));
}
