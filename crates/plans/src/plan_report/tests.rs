use serde_json::json;

use super::*;
use crate::{
    ChangedPlan, ExplainedPlan, ExplainedStatement, IndexGain, IndexSuggestion, Plan, PlanFindingKind,
    PlanMode, SequentialRead, Shape,
};

fn statement(text: &str, cost: f64, tests: &[&str]) -> ExplainedStatement {
    let plan = json!([{ "Plan": {
        "Node Type": "Seq Scan", "Relation Name": "orders", "Startup Cost": 0.0, "Total Cost": cost,
        "Plan Rows": 240, "Plan Width": 4,
    }}]);
    let plan = Plan::parse(&plan).unwrap();
    let shape = Shape::of(&plan);
    let sequential = vec![SequentialRead { table: "orders".to_owned(), rows: 48e6, bytes: 4_000_000_000 }];
    let tests: Vec<_> = tests.iter().map(|test| (*test).to_owned()).collect();
    let plan = ExplainedPlan { mode: PlanMode::Custom, plan, shape, tests: tests.clone(), sequential };
    ExplainedStatement { normalized: text.to_owned(), runs: 7, tests, plans: vec![plan] }
}

fn suggestion() -> IndexSuggestion {
    let gain =
        IndexGain { statement: 0, before: 774_288.4, after: 206.8, with: Vec::new(), foreign_key: false };
    IndexSuggestion {
        sql: "CREATE INDEX ON orders (customer_id)".to_owned(),
        table: "orders".to_owned(),
        bytes: 1_030_000_000,
        gains: vec![gain],
        replaces: Vec::new(),
        writers: 3,
    }
}

/// Returns a report with a slow statement, a statement without findings, and a plan that differs from the baseline.
fn report() -> PlanReport {
    let select = "SELECT orders.id, orders.customer_id, orders.placed_at FROM orders WHERE customer_id = ?";
    let tests = ["tests/test_cart.py::test_history", "tests/test_cart.py::test_total"];
    let analysis = Analysis {
        statements: vec![statement(select, 774_288.4, &tests), statement("SELECT ?", 0.01, &["test_one"])],
        findings: vec![PlanFinding {
            kind: PlanFindingKind::SequentialScan,
            statement: 0,
            tests: tests.map(str::to_owned).to_vec(),
            node: "Seq Scan".to_owned(),
            table: Some("orders".to_owned()),
            rows: 48e6,
            bytes: 4_000_000_000,
            cost: 774_288.4,
            cost_after: Some(206.8),
            seconds: Some((1.0, 20.0)),
            evidence: "It reads 4.00 GB of orders, 48 million rows, to find 240.".to_owned(),
            change: "CREATE INDEX ON orders (customer_id)".to_owned(),
            suggestions: vec![0],
        }],
        suggestions: vec![suggestion()],
        unused: vec!["orders_note_idx".to_owned()],
        ..Analysis::default()
    };
    let change = |before: &[&str], after: &[&str]| ChangedPlan {
        statement: "SELECT ?".to_owned(),
        tests: vec!["test_one".to_owned()],
        before: before.iter().map(|line| (*line).to_owned()).collect(),
        after: after.iter().map(|line| (*line).to_owned()).collect(),
    };
    let changed = change(&["Limit", "  Index Scan using a on t"], &["Limit", "  Seq Scan on t"]);
    PlanReport {
        statistics: StatisticsSummary {
            day: "2026-11-20".to_owned(),
            tables: 212,
            bytes: 61_000_000_000,
            server_version: 150_004,
        },
        postgres: "15.4".to_owned(),
        over_budget: crate::PlanBudget { cost: Some(1e5), sequential_bytes: None }.exceeded(&analysis),
        analysis,
        left_out: Vec::new(),
        unseen: vec!["5 runs of statements that PostgreSQL does not plan".to_owned()],
        changes: Some(BaselineChanges {
            statistics: "2026-11-20".to_owned(),
            postgres: 15,
            changed: vec![changed],
            new: vec![change(&[], &["Result"])],
            vanished: Vec::new(),
        }),
        seconds: 1.25,
    }
}

#[test]
fn summary_shows_findings_in_eighty_columns() {
    let expected = "\
production's plans (statistics of 2026-11-20, 212 tables, 61.0 GB)
explained 2 statements in 1.25 s after the command; 1 finding

2 tests   SELECT … FROM orders WHERE customer_id = ?
          It reads 4.00 GB of orders, 48 million rows, to find 240. About 1.00 s
          to 20.0 s a call.
  →       CREATE INDEX ON orders (customer_id) (cost 774,288 → 207, about 1.03
          GB)
  in      tests/test_cart.py::test_history, tests/test_cart.py::test_total

unused    no statement of the suite uses orders_note_idx
not seen  5 runs of statements that PostgreSQL does not plan
baseline  1 statement with a different plan, 1 statement that the baseline lacks
new       SELECT ?
";
    assert_eq!(report().summary(80), expected);
    for columns in [40, 60, 100, 1000] {
        let summary = report().summary(columns);
        assert!(summary.lines().all(|line| report::display_width(line) <= columns), "{summary}");
    }
}

#[test]
fn messages_name_statements_limits_and_tests() {
    let over = report().budget_message().unwrap();
    let expected = "\
1 statement exceeds the budget for production's plans
SELECT … FROM orders WHERE customer_id = ?
    cost 774,288, 100,000 allowed
    2 tests: tests/test_cart.py::test_history, tests/test_cart.py::test_total";
    assert_eq!(over, expected);
    let changed = report().baseline_message("plans.json").unwrap();
    let expected = "\
1 statement has a different plan than in \"plans.json\"
SELECT ?
      Limit
    -   Index Scan using a on t
    +   Seq Scan on t
    1 test: test_one
HINT:  If the new plans are right, write them with --update-baseline.";
    assert_eq!(changed, expected);
    let mut other = report();
    other.changes.as_mut().unwrap().statistics = "2026-11-13".to_owned();
    let message = other.baseline_message("plans.json").unwrap();
    assert!(
        message.contains("\nDETAIL:  The baseline has the plans for the statistics of 2026-11-13"),
        "{message}"
    );
}

#[test]
fn json_has_a_plan_for_each_statement() {
    let json = report().report("pytest").to_json();
    let plan = &json["plans"][0];
    assert_eq!(plan["tests"][1], "tests/test_cart.py::test_total");
    assert_eq!((&plan["node"], &plan["table"]), (&json!("Seq Scan"), &json!("orders")));
    assert_eq!((&plan["rows"], &plan["bytes"]), (&json!(48e6), &json!(4_000_000_000_u64)));
    assert_eq!(plan["cost"], 774_288.4);
    assert_eq!(plan["suggestion"]["sql"], "CREATE INDEX ON orders (customer_id)");
    assert_eq!(
        (&plan["suggestion"]["cost"], &plan["suggestion"]["bytes"]),
        (&json!(206.8), &json!(1_030_000_000))
    );
    assert_eq!(json["plans"][1]["suggestion"], json!(null));
    assert_eq!(json["baseline"]["changed"][0]["after"][1], "  Seq Scan on t");
    assert_eq!(json["plan_facts"]["unused"][0], "orders_note_idx");
}

#[test]
fn every_format_names_all_needed_indexes() {
    let mut report = report();
    let first = &mut report.analysis.suggestions[0];
    let other = IndexSuggestion { sql: "CREATE INDEX ON lines (sku)".to_owned(), ..first.clone() };
    first.gains[0].with = vec![1];
    report.analysis.suggestions.push(other);
    report.analysis.suggestions[1].gains[0].with = vec![0];
    let both = "CREATE INDEX ON orders (customer_id); CREATE INDEX ON lines (sku)";
    report.analysis.findings[0].suggestions = vec![0, 1];
    report.analysis.findings[0].change = both.to_owned();
    let summary: Vec<String> = report.summary(120).split_whitespace().map(str::to_owned).collect();
    let expected = format!("→ {both} (cost 774,288 → 207, about 2.06 GB)");
    assert!(summary.join(" ").contains(&expected), "{summary:?}");
    let report = report.report("pytest");
    let json = report.to_json();
    let suggestion = &json["plans"][0]["suggestion"];
    assert_eq!((&suggestion["sql"], &suggestion["bytes"]), (&json!(both), &json!(2_060_000_000_u64)));
    assert_eq!(
        json["plan_facts"]["suggestions"][1]["statements"][0]["with"],
        json!(["CREATE INDEX ON orders (customer_id)"])
    );
    let markdown = report.to_markdown().replace('\\', "");
    assert!(markdown.contains(&format!("{both}; they take about 2.06 GB.")), "{markdown}");
    assert!(markdown.contains("774,288 → 207 with CREATE INDEX ON lines (sku)"), "{markdown}");
}

#[test]
fn other_formats_have_statements_indexes_and_failures() {
    let report = report().report("pytest");
    let page = report.to_html("");
    assert!(page.contains("<code>CREATE INDEX ON orders (customer_id)</code>"), "{page}");
    let markdown = report.to_markdown();
    assert!(markdown.contains("## Suggested indexes") && markdown.contains("774,288 → 207"), "{markdown}");
    let junit = report.to_junit();
    assert!(junit.contains("tests=\"3\" failures=\"3\""), "{junit}");
    assert!(junit.contains("<failure message=\"cost 774,288, 100,000 allowed: SELECT orders.id"), "{junit}");
    assert!(junit.contains("the plan differs from the baseline: SELECT ?"), "{junit}");
}

#[test]
fn long_lists_of_columns_are_left_out() {
    for (statement, expected) in [
        ("SELECT a, b FROM t", "SELECT a, b FROM t"),
        ("SELECT DISTINCT t.first_column, t.second_column FROM t", "SELECT DISTINCT … FROM t"),
        ("SELECT (SELECT count(*) FROM u WHERE u.id = t.id), a from t", "SELECT … from t"),
        ("UPDATE orders SET a_long_column = 1 FROM t", "UPDATE orders SET a_long_column = 1 FROM t"),
        ("SELECT 'é', first_column_of_all, second_column", "SELECT 'é', first_column_of_all, second_column"),
    ] {
        assert_eq!(without_columns(statement), expected);
    }
}
