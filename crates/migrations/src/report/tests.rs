//! Checks that every format contains all facts, and that hostile names can't break a format's structure.

use proptest::prelude::*;

use super::examples::{dangerous, with_failing_suite};
use super::{MigrationReport, SuiteOutcome};
use crate::{Observations, ObservedStatement};

#[test]
fn text_lists_facts_below_their_migration() {
    let expected = "\
0042_orders_status.py
  ALTER TABLE orders ALTER COLUMN id TYPE bigint
      ACCESS EXCLUSIVE on orders: blocks reads and writes; rewrites orders and 2 indexes
      310 ms here for 200 k rows; 70 to 110 s in production (48 M rows, 4.02 GB)
      blocks 37 statements of 2 tests; the first: SELECT id, total FROM orders WHERE id = $1
      (tests/test_cart.py::test_a)
      breaks 1 statement of 1 test; the first: SELECT old FROM orders (test_old): column \"old\" does
      not exist
      the new type makes PostgreSQL copy the table
      instead: add a bigint column, backfill in batches, swap (docs/migrations.md#type-change)
  CREATE INDEX orders_status ON orders (status)
      SHARE on orders: blocks writes, not reads; reads all of orders
      90.0 ms here for 200 k rows; 12 to 30 s in production (48 M rows, 4.02 GB)
      allowed: no writes at night

3 statements of 1 migration, 1 that nothing waits for, since main (1a2b3c4); sizes of production:
statistics of 2026-11-20
assumed: the disk reads 200 MB/s
not seen: functions that triggers call
fails: access_exclusive is 70 to 110 s, the budget is 1 s
";
    assert_eq!(dangerous().to_text(100), expected);
}

#[test]
fn comments_before_statements_are_left_out() {
    let sql = "-- Slow.\n/* Very. */ CREATE INDEX ON a (b) -- Done.".to_owned();
    let statement = ObservedStatement { sql, ..ObservedStatement::default() };
    let report = MigrationReport::of(Observations { statements: vec![statement], ..Observations::default() });
    assert_eq!(report.statements[0].observed.sql, "CREATE INDEX ON a (b) -- Done.");
}

#[test]
fn empty_migration_is_one_sentence() {
    let report = MigrationReport { statements: Vec::new(), over_budget: Vec::new(), ..dangerous() };
    let text = report.to_text(100);
    assert!(text.starts_with("no migration since main (1a2b3c4)"), "{text}");
    assert!(report.passes() && !dangerous().passes());
}

#[test]
fn failing_suite_fails_the_report() {
    let report = with_failing_suite();
    assert!(!report.passes());
    let text = report.to_text(100);
    assert!(text.contains("old code: pytest fails on the migrated database (exit code 1)"), "{text}");
    assert!(text.contains("  SELECT old FROM orders\n      column \"old\" does not exist (42703)"), "{text}");
    let outcome = |exit_code, before, failures: usize| {
        let failures = report.suite.clone().unwrap().failures.into_iter().take(failures).collect();
        SuiteOutcome { exit_code, exit_code_before: before, failures, ..SuiteOutcome::default() }
    };
    for (exit_code, before, failures, passes) in
        [(0, None, 0, true), (1, Some(0), 0, false), (1, Some(1), 0, true), (1, Some(1), 1, false)]
    {
        assert_eq!(
            outcome(exit_code, before, failures).passes(),
            passes,
            "{exit_code} {before:?} {failures}"
        );
    }
}

#[test]
fn json_keeps_its_contract() {
    let json = dangerous().report().to_json();
    let statement = &json["statements"][1];
    assert_eq!((&json["format"], &json["passes"]), (&1.into(), &false.into()));
    assert_eq!(statement["sql"], "ALTER TABLE orders ALTER COLUMN id TYPE bigint");
    assert_eq!(statement["migration"], "0042_orders_status.py");
    assert_eq!(statement["locks"][0]["relation"], "public.orders");
    assert_eq!(statement["locks"][0]["mode"], "ACCESS EXCLUSIVE");
    assert_eq!(statement["rewrites"][1]["table"], "public.orders");
    assert_eq!(statement["scans"][0]["rows"], 400_000);
    assert_eq!(statement["predicted"]["high"], 110.0);
    assert_eq!(statement["blocks"][0]["tests"][1], "tests/test_cart.py::test_b");
    assert_eq!(statement["advice"][0]["page"], "docs/migrations.md#type-change");
    for key in ["seconds", "held_seconds", "exception", "breaks"] {
        assert!(statement.get(key).is_some(), "{key}");
    }
}

#[test]
fn markdown_begins_with_the_verdict() {
    let text = dangerous().to_markdown();
    let begin = "# Migrations since main (1a2b3c4)\n\n- **Fails**: access\\_exclusive is 70 to 110 s, the budget is 1 s\n";
    assert!(text.starts_with(begin), "{text}");
    assert!(text.contains("\n## 0042\\_orders\\_status.py\n"), "{text}");
    assert!(text.contains("```sql\nALTER TABLE orders ALTER COLUMN id TYPE bigint\n```"), "{text}");
    let passing = MigrationReport { over_budget: Vec::new(), ..dangerous() };
    assert!(passing.to_markdown().contains("- **Passes**"));
}

#[test]
fn junit_has_a_test_for_each_migration() {
    let text = dangerous().report().to_junit();
    assert!(text.contains("tests=\"1\" failures=\"1\""), "{text}");
    let text = with_failing_suite().report().to_junit();
    assert!(text.contains("name=\"old code\"") && text.contains("failures=\"1\""), "{text}");
}

#[test]
fn sarif_names_files_and_exceptions() {
    let report = dangerous();
    let log = report.to_sarif();
    let results = log["runs"][0]["results"].as_array().unwrap();
    let rules: Vec<_> = results.iter().map(|result| result["ruleId"].as_str().unwrap()).collect();
    assert_eq!(rules, ["type-change", "old-code", "budget"]);
    let location = &results[0]["locations"][0]["physicalLocation"];
    assert_eq!(location["artifactLocation"]["uri"], "app/migrations/0042_orders_status.py");
    assert_eq!(location["region"]["startLine"], 12);
    let defined = log["runs"][0]["tool"]["driver"]["rules"].as_array().unwrap();
    assert!(rules.iter().all(|rule| defined.iter().any(|one| one["id"] == **rule)), "{defined:?}");
}

#[test]
fn sarif_has_valid_paths_and_real_lines() {
    let mut report = dangerous();
    report.statements[1].line = None;
    for (file, uri) in [
        (Some("a b/#1?.sql"), "a%20b/%231%3F.sql"),
        (Some("grün/50%.py"), "gr%C3%BCn/50%25.py"),
        (Some("c:x.sql"), "c%3Ax.sql"),
        (None, "app/pgfresh.toml"),
    ] {
        report.files =
            file.map(|file| ("0042_orders_status.py".to_owned(), file.to_owned())).into_iter().collect();
        let log = report.to_sarif();
        let location = &log["runs"][0]["results"][0]["locations"][0]["physicalLocation"];
        assert_eq!(location["artifactLocation"]["uri"], uri);
        assert!(location["region"].is_null(), "{location}");
    }
}

#[test]
fn remedies_are_printed_once() {
    let mut report = dangerous();
    let statement = report.statements[1].clone();
    let mut other = statement.clone();
    other.advice[0].danger = "another danger".to_owned();
    let mut elsewhere = statement.clone();
    elsewhere.migration = Some("0043".to_owned());
    report.statements.extend([statement, other, elsewhere]);
    let text = report.to_text(100);
    assert_eq!(text.matches("instead: add a bigint column").count(), 2, "{text}");
    assert_eq!(
        text.matches("\n      instead: as above (docs/migrations.md#type-change)\n").count(),
        2,
        "{text}"
    );
    assert_eq!(text.matches("the new type makes PostgreSQL copy the table").count(), 3, "{text}");
    assert!(text.contains("      another danger\n      instead: as above"), "{text}");
}

#[test]
fn annotations_escape_their_values() {
    let mut report = dangerous();
    report.statements[1].observed.sql = "ALTER TABLE a, \"b\n:\"".to_owned();
    let text = report.to_annotations();
    let begin =
        "::error file=app/migrations/0042_orders_status.py,line=12,title=ALTER TABLE a%2C \"b %3A\"::access";
    assert!(text.starts_with(begin), "{text}");
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(!text.contains("CREATE INDEX"), "{text}");
}

proptest! {
    #[test]
    fn hostile_texts_stay_in_their_lines(sql in any::<String>(), migration in any::<String>(), columns in 0usize..200) {
        let mut report = dangerous();
        report.statements[1].observed.sql = sql;
        report.statements[1].migration = Some(migration);
        for text in [report.to_text(columns), report.to_markdown(), report.to_annotations()] {
            prop_assert!(!text.contains(|letter: char| letter.is_control() && letter != '\n'), "{:?}", text);
        }
        prop_assert!(report.to_annotations().lines().all(|line| line.starts_with("::")));
        prop_assert_eq!(report.report().to_json()["statements"].as_array().map(Vec::len), Some(6));
    }
}

#[test]
fn suite_that_cannot_start_does_not_pass() {
    for (code, passes) in [(0, true), (1, true), (2, true), (126, false), (127, false)] {
        let suite = SuiteOutcome { exit_code: code, exit_code_before: Some(code), ..SuiteOutcome::default() };
        assert_eq!(suite.passes(), passes, "{code}");
        assert_eq!(suite.sentence().contains("cannot be run"), !passes, "{code}");
    }
}
