//! Tests that `migrate check` names the statements of a recorded suite that wait for the migration, and the
//! statements that it breaks.

use serde_json::{Value, json};

use super::Project;
use crate::common::finish;
use crate::common::ground::{program, psql};

const MIGRATION: &str = "ALTER TABLE orders RENAME COLUMN status TO state; CREATE INDEX ON orders (state);";
const SUITE: &str = "SELECT status FROM orders WHERE id = 1; INSERT INTO orders (id) VALUES (1000)";

/// Records the suite with `options`.
fn record(project: &Project, options: &[&str]) {
    let script = format!(
        "'{}' -XAtqd one -c \"{SUITE}\" && '{}' release one --test test_cart",
        psql(),
        program().display()
    );
    let words = [&["run", "--postgres", "15"], options, &["--", "sh", "-ec", &script]].concat();
    let mut command = project.scene.pgfresh(words);
    command.current_dir(project.folder());
    let outcome = finish(command);
    assert_eq!(outcome.code, Some(0), "{outcome}");
}

/// Returns the report of a check, which must end with `code`.
fn check(project: &Project, options: &[&str], code: i32) -> Value {
    let outcome = project.ends(&[&["check", "--json"], options].concat(), code);
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome}"))
}

/// Returns two numbers for each statement of the migration: the suite's statements that wait for it,
/// and those that it breaks.
fn counts(report: &Value) -> Vec<(usize, usize)> {
    let count = |statement: &Value, name: &str| statement[name].as_array().map_or(0, Vec::len);
    let statements = report["statements"].as_array().unwrap().iter();
    statements.map(|statement| (count(statement, "blocks"), count(statement, "breaks"))).collect()
}

#[test]
fn recorded_statements_that_wait_or_break_are_named() {
    let project = Project::new();
    record(&project, &["--profile"]);
    record(&project, &["--statements", "suite.json"]);
    project.write("migrations/0002_state.sql", MIGRATION);
    project.commit();
    for options in [&[][..], &["--statements", "suite.json"]] {
        let report = check(&project, options, 0);
        assert_eq!(counts(&report), [(2, 1), (1, 0)], "{report:#}");
        let [rename, index] = [0, 1].map(|number| &report["statements"][number]);
        let breaks = json!([{
            "statement": "SELECT status FROM orders WHERE id = ?", "tests": ["test_cart"], "error": "column \"status\" does not exist",
        }]);
        assert_eq!(rename["breaks"], breaks, "{report:#}");
        let blocked = &index["blocks"][0];
        let facts = ["statement", "wants", "held"].map(|name| blocked[name].as_str().unwrap());
        assert_eq!(facts, ["INSERT INTO orders(id) VALUES (?)", "ROW EXCLUSIVE", "SHARE"], "{report:#}");
        assert_eq!(blocked["tests"], json!(["test_cart"]), "{report:#}");
    }
}

#[test]
fn files_of_statements_are_checked_first() {
    let project = Project::new();
    project.write("broken.json", "{\"format\":2}");
    project.commit();
    let message =
        "could not read the statements in \"broken.json\": its format is 2, and this pgfresh reads format 1";
    project.fails(&["check", "--statements", "broken.json"], message);
    project.fails(&["check", "--statements", "none.json"], "\"none.json\": No such file or directory");
}
