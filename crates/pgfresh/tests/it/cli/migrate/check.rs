//! Tests `migrate check`: the report names what each new statement locks, and determines the exit code.

use std::fs;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{ORDERS, Project};
use crate::common::{collect, finish, wait_until};

/// Migration that makes other statements wait.
const TYPE_CHANGE: &str = "ALTER TABLE orders ALTER COLUMN id TYPE bigint;\nCREATE TABLE notes (id int);\n";

/// Makes a project with a dangerous migration.
fn dangerous(more: &str) -> Project {
    let project = Project::with(&format!("[template]\nsql = \"migrations/*.sql\"\n{more}"));
    project.write("migrations/0002_type.sql", TYPE_CHANGE);
    project
}

fn json_of(stdout: &str) -> Value {
    serde_json::from_str(stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"))
}

/// Returns the statement that changes the type.
fn type_change(report: &Value) -> &Value {
    let statements = report["statements"].as_array().unwrap();
    statements.iter().find(|one| one["sql"].as_str().unwrap().contains("bigint")).unwrap()
}

#[test]
fn report_names_locks_and_rewrites() {
    let project = dangerous("");
    let outcome = project.ends(&["check"], 0);
    for part in [
        "0002_type.sql\n  ALTER TABLE orders ALTER COLUMN id TYPE bigint\n",
        "ACCESS EXCLUSIVE on orders: blocks reads and writes; rewrites orders and 1 index\n",
        "instead: ",
        "2 statements of 1 migration, 1 that nothing waits for, since main (",
        "not seen: the statements of your suite",
    ] {
        assert!(outcome.stdout.contains(part), "{part:?} {outcome}");
    }
    let outcome = project.ends(&["check", "--json"], 0);
    let report = json_of(&outcome.stdout);
    let statement = type_change(&report);
    assert_eq!(statement["locks"][0]["mode"], "ACCESS EXCLUSIVE", "{statement}");
    assert_eq!(statement["locks"][0]["relation"], "public.orders", "{statement}");
    assert!(statement["rewrites"].to_string().contains("public.orders_pkey"), "{statement}");
    assert!(statement["seconds"].as_f64().unwrap() > 0.0, "{statement}");
    assert!(statement["predicted"].is_null() && report["passes"] == true, "{report}");
}

#[test]
fn no_new_migration_is_no_error() {
    let project = Project::new();
    let outcome = project.ends(&["check"], 0);
    assert!(outcome.stdout.starts_with("no migration since main ("), "{outcome}");
    let outcome = project.ends(&["check", "--", "psql", "-Xqc", "SELECT 1"], 0);
    assert!(outcome.stdout.starts_with("no migration since main ("), "{outcome}");
}

#[test]
fn setup_command_runs_again_on_the_base() {
    let setup = "for file in migrations/*.sql; do psql -Xq -v ON_ERROR_STOP=1 -f $file; done";
    let project = Project::with(&format!("[template]\nsetup = \"{setup}\"\ninputs = [\"migrations/**\"]\n"));
    project.write("migrations/0001_orders.sql", "ALTER TABLE orders ADD COLUMN note text;");
    let outcome = project.ends(&["check"], 0);
    assert!(outcome.stdout.contains("ADD COLUMN note text\n      ACCESS EXCLUSIVE on orders"), "{outcome}");
}

#[test]
fn budgets_and_exceptions_decide_the_exit_code() {
    let budget = "[migrate]\naccess_exclusive = \"1s\"\n";
    let project = dangerous(budget);
    let rows = ["check", "--rows", "orders=500M"];
    let outcome = project.ends(&rows, 1);
    assert!(outcome.stdout.contains("fails: access_exclusive is "), "{outcome}");
    assert!(outcome.stdout.contains(" in production (500 M rows, "), "{outcome}");
    let statement = json_of(&project.ends(&[&rows[..], &["--json"]].concat(), 1).stdout);
    let predicted = &type_change(&statement)["predicted"];
    assert!(predicted["low"].as_f64().unwrap() < predicted["high"].as_f64().unwrap(), "{predicted}");
    let allowed = format!(
        "{budget}[[migrate.allow]]\nstatement = \"ALTER TABLE orders *\"\nreason = \"there is a window at night\"\n"
    );
    project.write("pgfresh.toml", &format!("[template]\nsql = \"migrations/*.sql\"\n{allowed}"));
    let outcome = project.ends(&rows, 0);
    assert!(outcome.stdout.contains("allowed: there is a window at night\n"), "{outcome}");
    let outcome = project.ends(&["check", "--rows", "ordrs=5M"], 125);
    assert!(outcome.stderr.contains("Did you mean orders"), "{outcome}");
}

#[test]
fn statements_of_the_suite_wait_and_break() {
    let project = Project::new();
    let select = "SELECT status FROM orders WHERE id = 5";
    let mut run = project.scene.pgfresh(["run", "--profile", "--", "psql", "-Xqc", select]);
    run.env("PGFRESH_POSTGRES", "15").current_dir(project.folder());
    let run = finish(run);
    assert_eq!(run.code, Some(0), "{run}");
    project.write("migrations/0002_drop.sql", "ALTER TABLE orders DROP COLUMN status;");
    let outcome = project.ends(&["check"], 0);
    for part in [
        "blocks 1 statement",
        "breaks 1 statement",
        "SELECT status FROM orders WHERE id = ?",
        "column \"status\" does not",
    ] {
        assert!(outcome.stdout.contains(part), "{part:?} {outcome}");
    }
}

#[test]
fn each_format_has_the_statement() {
    let project = dangerous("");
    let names = ["r.md", "r.json", "r.html", "r.csv", "r.txt", "r.xml", "r.sarif"];
    let words: Vec<_> = names.iter().flat_map(|name| ["--report", name]).collect();
    let mut command = project.command(&[&["check"], &words[..]].concat());
    command.env("GITHUB_ACTIONS", "true").env("GITHUB_STEP_SUMMARY", project.folder().join("summary"));
    let outcome = finish(command);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    for name in names.iter().chain(&["summary"]) {
        let text = fs::read_to_string(project.folder().join(name)).unwrap();
        assert!(text.contains("ALTER COLUMN id TYPE bigint"), "{name}: {text}");
    }
    let sarif = json_of(&fs::read_to_string(project.folder().join("r.sarif")).unwrap());
    let location =
        &sarif["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"];
    assert_eq!(location, "migrations/0002_type.sql", "{sarif}");
    assert!(outcome.stderr.contains("::warning file=migrations/0002_type.sql,line=1,"), "{outcome}");
    let outcome = project.ends(&["check", "--report", "r.pdf"], 2);
    assert!(outcome.stderr.contains(".sarif"), "{outcome}");
}

#[test]
fn failing_migration_is_reported_until_then() {
    let project = Project::new();
    project.write(
        "migrations/0002_more.sql",
        "CREATE INDEX by_status ON orders (status);\nALTER TABLE nothing ADD x int;\n",
    );
    let outcome = project.ends(&["check"], 3);
    for part in
        ["SHARE on orders", "fails: relation \"nothing\" does not exist (42P01)", "failed with exit code 3"]
    {
        assert!(outcome.stdout.contains(part), "{part:?} {outcome}");
    }
}

#[test]
fn data_command_fills_the_base() {
    let data = "psql -Xqc \\\"INSERT INTO orders VALUES (1000, NULL)\\\"";
    let project =
        Project::with(&format!("[template]\nsql = \"migrations/*.sql\"\n[migrate]\ndata = \"{data}\"\n"));
    project.write("migrations/0002_null.sql", "ALTER TABLE orders ALTER COLUMN status SET NOT NULL;");
    for _ in 0..2 {
        let outcome = project.ends(&["check"], 3);
        assert!(outcome.stdout.contains("contains null values (23502)"), "{outcome}");
    }
    // Only the check has the data.
    let mut run = project.scene.pgfresh(["run", "--", "psql", "-XAtqc", "SELECT count(*) FROM orders"]);
    run.env("PGFRESH_POSTGRES", "15").current_dir(project.folder());
    project.git(&["stash", "--quiet", "--include-untracked"]);
    assert_eq!(finish(run).stdout, "100\n");
}

#[test]
fn interrupted_hanging_migration_is_reported() {
    let project = Project::new();
    let hang = "psql -Xqc 'BEGIN; LOCK TABLE orders' -c 'SELECT pg_sleep(600)' & sleep 2; \
        psql -Xqc 'ALTER TABLE orders ADD COLUMN note text'; wait";
    let command = project.command(&["check", "--", "sh", "-c", hang]);
    let (child, outcome) = start_and_interrupt(command, Signal::TERM);
    let _ = child;
    assert!(
        outcome.stdout.contains("waits: ALTER TABLE orders ADD COLUMN note text waits for a lock"),
        "{outcome}"
    );
    assert!(outcome.stdout.contains("; interrupted") && outcome.code != Some(0), "{outcome}");
}

/// Starts the command, waits until it reports a waiting statement, and sends the signal.
fn start_and_interrupt(mut command: std::process::Command, signal: Signal) -> (u32, crate::common::Outcome) {
    let log = tempfile::NamedTempFile::new().unwrap();
    command.stdout(Stdio::piped()).stderr(log.reopen().unwrap());
    let child = command.spawn().unwrap();
    let pid = child.id();
    wait_until("the report of a waiting statement", || {
        fs::read_to_string(log.path()).unwrap().contains(" waits for a lock of another session")
    });
    kill_process(Pid::from_child(&child), signal).unwrap();
    let mut outcome = collect(child);
    outcome.stderr = fs::read_to_string(log.path()).unwrap();
    (pid, outcome)
}

#[test]
fn kill_leaves_nothing_behind() {
    let project = Project::new();
    let mut command = project.command(&["check", "--", "sleep", "600"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let is_running = || !crate::common::leftovers::children_of(child.id()).is_empty();
    wait_until("the migration command", is_running);
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    let outcome = collect(child);
    assert_eq!(outcome.signal, Some(9), "{outcome}");
    project.scene.assert_nothing_left("after a kill");
    assert_eq!(project.git(&["status", "--short"]), "");
}

#[test]
fn unknown_tables_are_refused_before_the_run() {
    let project = Project::new();
    let outcome = project.ends(&["check", "--rows", "ordrs=5M", "--", "touch", "ran"], 125);
    assert!(outcome.stderr.contains("Did you mean orders"), "{outcome}");
    assert!(!project.folder().join("ran").exists(), "{outcome}");
}

#[test]
fn removed_and_renamed_migrations_are_named() {
    let project = Project::new();
    project.git(&["checkout", "--quiet", "main"]);
    project.write("migrations/0002_gone.sql", "CREATE TABLE gone (id int);");
    project.commit();
    project.git(&["checkout", "--quiet", "-B", "feature"]);
    project.git(&["rm", "--quiet", "migrations/0002_gone.sql"]);
    project.git(&["mv", "migrations/0001_orders.sql", "migrations/0001_customers.sql"]);
    project.write("migrations/0003_more.sql", "CREATE TABLE more (id int);");
    for words in [&["check"][..], &["check", "--", "psql", "-Xqc", "CREATE TABLE more (id int)"]] {
        let outcome = project.ends(words, 0);
        for part in [
            "), but still in its template: migrations/0002_gone.sql\n",
            "): migrations/0001_orders.sql, now migrations/0001_customers.sql\n",
        ] {
            assert!(outcome.stderr.contains(part), "{part:?} {outcome}");
        }
        assert!(outcome.stdout.contains("1 statement"), "{outcome}");
    }
}

#[test]
fn files_and_lines_are_those_of_the_repository() {
    let project = Project::new();
    project.write("shop & co/pgfresh.toml", "[template]\nsql = \"migrations/*.sql\"\n");
    project.write("shop & co/migrations/0001_shop.sql", ORDERS);
    project.commit();
    project.write(
        "shop & co/migrations/0002 #1.sql",
        "-- Slow.\nSET lock_timeout = '1s';\n\n/* Why\n */ ALTER TABLE orders\n  ALTER id TYPE bigint;\n",
    );
    let mut command = project.command(&["check", "--from", "HEAD", "--report", "r.sarif", "--json"]);
    command.current_dir(project.folder().join("shop & co")).env("GITHUB_ACTIONS", "true");
    let outcome = finish(command);
    let sarif = json_of(&fs::read_to_string(project.folder().join("shop & co/r.sarif")).unwrap());
    let location = &sarif["runs"][0]["results"][0]["locations"][0]["physicalLocation"];
    assert_eq!(location["artifactLocation"]["uri"], "shop%20&%20co/migrations/0002%20%231.sql", "{sarif}");
    assert_eq!(location["region"]["startLine"], 5, "{sarif}");
    let file = "::warning file=shop & co/migrations/0002 #1.sql,line=5,title=";
    assert!(outcome.stderr.contains(file), "{outcome}");
    let statement = type_change(&json_of(&outcome.stdout)).clone();
    assert_eq!(
        (&statement["file"], &statement["line"]),
        (&"shop & co/migrations/0002 #1.sql".into(), &5.into())
    );

    // The statement isn't in either of the two added files, so the report names pgfresh.toml instead.
    project.write("shop & co/migrations/0003.sql", "CREATE TABLE more (id int);");
    let mut command = project.command(&["check", "--from", "HEAD", "--report", "r.sarif"]);
    command.args(["--", "psql", "-Xqc", "ALTER TABLE orders ALTER id TYPE numeric"]);
    command.current_dir(project.folder().join("shop & co"));
    finish(command);
    let sarif = json_of(&fs::read_to_string(project.folder().join("shop & co/r.sarif")).unwrap());
    let location = &sarif["runs"][0]["results"][0]["locations"][0]["physicalLocation"];
    assert_eq!(location["artifactLocation"]["uri"], "shop%20&%20co/pgfresh.toml", "{sarif}");
    assert!(location["region"].is_null(), "{sarif}");
}
