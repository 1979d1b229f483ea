//! Tests `migrate check --suite`, which runs the older revision's tests on the migrated database.

use super::Project;

/// Test in the older revision that reads a column.
const TEST: &str = "psql -XAtq -v ON_ERROR_STOP=1 -c 'SELECT status FROM orders WHERE id = 7' || { echo 'FAILED tests/test_orders.py::test_status'; exit 4; }";

fn project(migration: &str) -> Project {
    let project = Project::new();
    project.git(&["checkout", "--quiet", "main"]);
    project.write("test.sh", TEST);
    project.commit();
    project.git(&["checkout", "--quiet", "-B", "feature"]);
    project.write("test.sh", "exit 9");
    project.write("migrations/0002_change.sql", migration);
    project
}

#[test]
fn old_test_passes_on_compatible_migration() {
    let project = project("ALTER TABLE orders ADD COLUMN note text;");
    let outcome = project.ends(&["check", "--suite", "--", "sh", "test.sh"], 0);
    assert!(outcome.stdout.contains("old code: sh test.sh passes on the migrated database\n"), "{outcome}");
}

#[test]
fn broken_old_code_fails_the_check() {
    let project = project("ALTER TABLE orders RENAME COLUMN status TO state;");
    let outcome = project.ends(&["check", "--suite", "--json", "--", "sh", "test.sh"], 1);
    let report: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    let suite = &report["suite"];
    assert_eq!((&suite["exit_code"], &suite["exit_code_before"]), (&4.into(), &0.into()), "{suite}");
    assert_eq!(suite["failures"][0]["statement"], "SELECT status FROM orders WHERE id = ?", "{suite}");
    assert_eq!(suite["failed_tests"][0], "tests/test_orders.py::test_status", "{suite}");
    assert!(report["passes"] == false, "{report}");
}

#[test]
fn suite_that_fails_before_does_not_count() {
    let project = project("ALTER TABLE orders ADD COLUMN note text;");
    let outcome =
        project.ends(&["check", "--suite", "--", "sh", "-c", "psql -Xqc 'SELECT missing'; exit 5"], 0);
    assert!(outcome.stdout.contains("fails before the migration and after it"), "{outcome}");
}

#[test]
fn suite_needs_its_command() {
    let project = project("SELECT 1");
    let outcome = project.ends(&["check", "--suite"], 2);
    assert!(outcome.stderr.contains("the command of the suite is missing"), "{outcome}");
}
