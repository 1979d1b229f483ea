//! Tests budgets and statement counts on a real server.

use std::env;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Output};
use std::time::Duration;

use pgfresh_test::{Database, Options};
use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _, PgConnection};
use tempfile::TempDir;

async fn connect(database: &Database) -> PgConnection {
    PgConnection::connect(database.url()).await.unwrap()
}

async fn books_of(connection: &mut PgConnection, authors: i32) {
    for author in 0..authors {
        sqlx::query("SELECT 'book' WHERE $1 >= 0").bind(author).execute(&mut *connection).await.unwrap();
    }
}

/// Runs a test and returns the message of its panic, or None if it passes.
fn failure(test: impl Future<Output = ()>) -> Option<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let panic = catch_unwind(AssertUnwindSafe(|| runtime.block_on(test))).err()?;
    let constant = panic.downcast_ref::<&str>().copied();
    Some(constant.map_or_else(|| panic.downcast_ref::<String>().unwrap().clone(), str::to_owned))
}

#[test]
fn test_at_its_budget_passes() {
    let failed = failure(async {
        let options = Options::default().statements(7).n_plus_one(7).time(Duration::from_mins(10));
        let database = options.lease().unwrap();
        books_of(&mut connect(&database).await, 7).await;
    });
    assert_eq!(failed, None);
    assert_eq!(failure(async { drop(Options::default().statements(0).lease().unwrap()) }), None);
}

#[test]
fn exceeded_budget_lists_statements() {
    let failed = failure(async {
        let database = Options::default().statements(7).n_plus_one(6).lease().unwrap();
        let mut connection = connect(&database).await;
        connection.execute("CREATE TABLE t ()").await.unwrap();
        books_of(&mut connection, 7).await;
    });
    let expected =
        "budget exceeded: 8 statements, 7 allowed; one query ran 7 times with different values, 6 allowed
     7 × SELECT ? WHERE ? >= ? (N+1)
     1 × CREATE TABLE t()";
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(squeezed(&failed.unwrap()), squeezed(expected));
}

#[test]
fn time_limit_fails_slow_test() {
    let failed = failure(async {
        let database = Options::default().time(Duration::ZERO).lease().unwrap();
        books_of(&mut connect(&database).await, 1).await;
    });
    let failed = failed.unwrap();
    assert!(failed.contains(" ms in the database, 0.0 ms allowed"), "{failed}");
}

#[test]
fn failed_test_keeps_its_reason() {
    let failed = failure(async {
        let database = Options::default().statements(0).lease().unwrap();
        books_of(&mut connect(&database).await, 1).await;
        panic!("its own reason");
    });
    assert_eq!(failed.as_deref(), Some("its own reason"));
}

#[test]
fn two_exceeded_budgets_are_one_failure() {
    let failed = failure(async {
        let options = Options::default().statements(0);
        let (one, two) = (options.lease().unwrap(), options.lease().unwrap());
        books_of(&mut connect(&one).await, 1).await;
        books_of(&mut connect(&two).await, 2).await;
    });
    let failed = failed.unwrap();
    // Rust drops the bindings of a pattern in reverse order, so the second database reports its budget.
    assert!(failed.starts_with("budget exceeded: 2 statements, 0 allowed"), "{failed}");
}

#[test]
fn reset_returns_budget_error_and_restarts_count() {
    let failed = failure(async {
        let database = Options::default().statements(5).lease().unwrap();
        books_of(&mut connect(&database).await, 5).await;
        database.reset_closing_sessions().unwrap();
        books_of(&mut connect(&database).await, 6).await;
        let error = database.reset_closing_sessions().unwrap_err();
        assert!(error.message.starts_with("budget exceeded: 6 statements, 5 allowed"), "{error}");
        books_of(&mut connect(&database).await, 5).await;
    });
    assert_eq!(failed, None);
}

#[tokio::test]
async fn counter_returns_statements() {
    let database = Options::default().record().lease().unwrap();
    let mut connection = connect(&database).await;
    connection.execute("SELECT 1").await.unwrap();
    let counter = database.count_statements().unwrap();
    connection.execute("SELECT 2").await.unwrap();
    for _ in 0..2 {
        connection.execute("VALUES (1), (2)").await.unwrap();
    }
    let ran = counter.finish().unwrap();
    connection.execute("SELECT 3").await.unwrap();
    let lines: Vec<_> =
        ran.most_frequent.iter().map(|line| (line.text.as_str(), line.count, line.rows)).collect();
    assert_eq!((ran.count, ran.complete), (3, true));
    assert_eq!(lines, [("VALUES (?), …", 2, 4), ("SELECT ?", 1, 1)]);
    assert_eq!(ran.to_string(), "3 statements: 2x VALUES (?), …, 1x SELECT ?");
    assert!(ran.time > Duration::ZERO);

    let ran = database.count_statements().unwrap().finish().unwrap();
    assert_eq!((ran.count, ran.most_frequent.len(), ran.to_string().as_str()), (0, 0, "0 statements"));
}

#[tokio::test]
async fn reset_restarts_counter() {
    let database = Options::default().record().lease().unwrap();
    books_of(&mut connect(&database).await, 1).await;
    let counter = database.count_statements().unwrap();
    database.reset_closing_sessions().unwrap();
    books_of(&mut connect(&database).await, 1).await;
    let ran = counter.finish().unwrap();
    assert_eq!((ran.count, ran.complete), (1, false));
}

#[test]
fn counting_requires_recording() {
    let error = Database::fresh().count_statements().unwrap_err();
    assert_eq!(error.code.as_deref(), Some("55000"), "{error}");
}

/// Runs the ignored tests in this file whose names contain `filter`. `file` is the content of the project's
/// `pgfresh.toml`.
fn run(filter: &str, file: &str, options: &[&str]) -> (Output, TempDir) {
    let project = tempfile::tempdir().unwrap();
    fs::write(project.path().join("pgfresh.toml"), file).unwrap();
    let pgfresh = env::var_os("PGFRESH_BIN").unwrap_or("pgfresh".into());
    let output = Command::new(pgfresh)
        .current_dir(project.path())
        .env_remove("PGFRESH_CONTROL")
        .env_remove("PGFRESH_HOLDER")
        .arg("run")
        .args(options)
        .arg("--")
        .arg(env::current_exe().unwrap())
        .args([filter, "--ignored", "--test-threads=2"])
        .output()
        .unwrap();
    (output, project)
}

#[test]
fn options_replace_budget_of_file() {
    let (output, _project) = run("of_the_file", "[budget]\nstatements = 3\n", &[]);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(out.contains("2 passed; 1 failed"), "{out}{err}");
    assert!(out.contains("budget exceeded: 4 statements, 3 allowed"), "{out}{err}");
    assert!(!err.contains("a test exceeded its budget"), "pgfresh repeats the error of the test: {err}");
    assert!(!output.status.success());
}

#[tokio::test]
#[ignore = "options_replace_budget_of_file runs it"]
async fn within_the_budget_of_the_file() {
    let database = Database::fresh();
    books_of(&mut connect(&database).await, 3).await;
}

#[tokio::test]
#[ignore = "options_replace_budget_of_file runs it"]
async fn beyond_the_budget_of_the_file() {
    let database = Database::fresh();
    books_of(&mut connect(&database).await, 4).await;
}

#[tokio::test]
#[ignore = "options_replace_budget_of_file runs it"]
async fn more_than_the_budget_of_the_file() {
    let database = Options::default().statements(4).lease().unwrap();
    books_of(&mut connect(&database).await, 4).await;
}

#[test]
fn profile_names_tests_before_and_after_reset() {
    let (output, project) = run("profiled", "", &["--profile", "--report", "report.json", "--keep-failed"]);
    let err = String::from_utf8_lossy(&output.stderr);
    let report = fs::read(project.path().join("report.json")).unwrap_or_else(|_| panic!("{err}"));
    let report: Value = serde_json::from_slice(&report).unwrap();
    let mut seen: Vec<Value> = report["tests"].as_array().unwrap().iter().map(summary).collect();
    seen.sort_by_key(ToString::to_string);
    let expected = [
        json!(["profiled_beyond_its_budget", 8, [8]]),
        json!(["profiled_with_a_reset", 1, []]),
        json!(["profiled_with_a_reset", 30, [30]]),
    ];
    assert_eq!(seen, expected);
    assert!(err.contains("profiled_beyond_its_budget"), "pgfresh does not report the kept database: {err}");
}

fn summary(test: &Value) -> Value {
    let found = test["n_plus_one"].as_array().unwrap();
    let counts: Vec<&Value> = found.iter().map(|found| &found["count"]).collect();
    json!([test["name"], test["statements"], counts])
}

#[tokio::test]
#[ignore = "profile_names_tests_before_and_after_reset runs it"]
async fn profiled_with_a_reset() {
    let database = Database::fresh();
    books_of(&mut connect(&database).await, 30).await;
    database.reset_closing_sessions().unwrap();
    books_of(&mut connect(&database).await, 1).await;
}

#[tokio::test]
#[ignore = "profile_names_tests_before_and_after_reset runs it"]
async fn profiled_beyond_its_budget() {
    let database = Options::default().statements(7).lease().unwrap();
    books_of(&mut connect(&database).await, 8).await;
}
