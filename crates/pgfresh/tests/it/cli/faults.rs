//! `faults`: finds handlers that lose or double rows or hide errors, ends with a signal or its budget, and repeats findings.

use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{Outcome, Scene, User, collect, ground, on_every_major, postgres, wait_until};

on_every_major! {
    blind_retry_doubles_rows
    hidden_errors_are_found
    careful_handlers_have_no_finding
}

const SCHEMA: &str = "CREATE TABLE orders (id int GENERATED ALWAYS AS IDENTITY, key text UNIQUE, item text); \
    CREATE TABLE audit (at timestamptz DEFAULT clock_timestamp(), note text);";

/// Shell function that runs its arguments in one session and one transaction, and fails if any of them does.
const TRANSACTION: &str = "psql() { command psql -XAtq -v ON_ERROR_STOP=1 \"$@\"; }; \
    transaction() { psql -c BEGIN -c \"$1\" -c COMMIT; }; retry() { \"$@\" || \"$@\" || \"$@\"; };";

fn scene() -> Scene {
    let scene = Scene::new(User::Ourselves);
    scene.write("pgfresh.toml", "[template]\nsql = \"schema.sql\"\n");
    scene.write("schema.sql", SCHEMA);
    scene
}

fn sweep(scene: &Scene, major: u32, options: &[&str], command: &[&str]) -> Outcome {
    let mut pgfresh = scene.pgfresh([&["faults", "--json"], options, &["--"], command].concat());
    pgfresh.env("PGFRESH_POSTGRES", postgres(major)).env("PGFRESH", ground::program());
    crate::common::finish(pgfresh)
}

fn shell(scene: &Scene, major: u32, script: &str) -> (Outcome, Value) {
    let outcome = sweep(scene, major, &[], &["sh", "-euc", &format!("{TRANSACTION} {script}")]);
    let report = report(&outcome);
    (outcome, report)
}

fn report(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|_| panic!("{outcome}"))
}

/// Returns kind and fault of each finding.
fn findings(report: &Value) -> BTreeSet<(&str, &str)> {
    let findings = report["findings"].as_array().unwrap().iter();
    findings.map(|one| (one["kind"].as_str().unwrap(), one["fault"].as_str().unwrap())).collect()
}

fn blind_retry_doubles_rows(major: u32) {
    let scene = scene();
    let (outcome, report) =
        shell(&scene, major, "retry transaction \"INSERT INTO orders (item) VALUES ('lamp')\"");
    assert_eq!(outcome.code, Some(1), "{outcome}");
    assert_eq!(findings(&report), BTreeSet::from([("doubled_rows", "lost after")]), "{outcome}");
    let found = &report["findings"][0];
    assert_eq!(found["statement"], "COMMIT", "{outcome}");
    assert_eq!(found["differences"][0]["rows"][0], "key=NULL, item=lamp", "{outcome}");
    // COMMIT has three faults, and the write before it four.
    assert_eq!((&report["runs"]["made"], &report["runs"]["recovered"]), (&7.into(), &6.into()), "{outcome}");
}

fn hidden_errors_are_found(major: u32) {
    let scene = scene();
    let (outcome, report) =
        shell(&scene, major, "psql -c \"INSERT INTO audit (note) VALUES ('sold')\" || true");
    assert_eq!(outcome.code, Some(1), "{outcome}");
    let expected = ["lost before", "40001", "40P01", "57014"].map(|fault| ("hidden_error", fault));
    assert_eq!(findings(&report), BTreeSet::from(expected), "{outcome}");
}

fn careful_handlers_have_no_finding(major: u32) {
    let scene = scene();
    let script = "retry transaction \"INSERT INTO orders (key, item) VALUES ('a', 'lamp') ON CONFLICT DO NOTHING\"; \
        psql -c \"INSERT INTO audit (note) VALUES ('sold')\"; psql -c 'SELECT note FROM audit'";
    let (outcome, report) = shell(&scene, major, script);
    assert_eq!((outcome.code, findings(&report)), (Some(0), BTreeSet::new()), "{outcome}");
    // A test that fails has no finding: it shows the error.
    assert_eq!((&report["runs"]["recovered"], &report["runs"]["shown"]), (&7.into(), &7.into()), "{outcome}");
}

#[test]
fn placeholder_limits_runs_to_one_test() {
    let scene = scene();
    let suite = "echo \"${1-}\" >>runs; for test in bad good; do case \"${1-}\" in \"\"|$test) \
        url=$(\"$PGFRESH\" url $test); sql=\"INSERT INTO orders (item) VALUES ('$test')\"; \
        psql -XAtqc \"$sql\" \"$url\" || [ $test = bad ]; \"$PGFRESH\" release $test --test $test; esac; done";
    scene.write("suite.sh", suite);
    let words = ["sh", "-eu", "suite.sh", "{test}"];
    let outcome = sweep(&scene, 15, &[], &words);
    let report = report(&outcome);
    let expected = ["lost before", "40001", "40P01", "57014"].map(|fault| ("hidden_error", fault));
    assert_eq!(findings(&report), BTreeSet::from(expected), "{outcome}");
    let runs = fs::read_to_string(scene.directory.join("runs")).unwrap();
    let count = |test: &str| runs.lines().filter(|line| *line == test).count();
    // Two runs without faults, five faults, and four findings that are confirmed.
    assert_eq!([count(""), count("good"), count("bad")], [1, 7, 11], "{runs}");
    let name = report["findings"][0]["name"].as_str().unwrap();
    assert!(name.starts_with("bad:INSERT INTO orders"), "{outcome}");
    let again = sweep(&scene, 15, &["--only", name], &words);
    let again = self::report(&again);
    assert_eq!((findings(&again).len(), &again["runs"]["made"]), (1, &1.into()), "{outcome}");
}

#[test]
fn signal_ends_sweep_with_its_findings() {
    let scene = scene();
    let script =
        "echo >>runs; [ $(wc -l <runs) -lt 4 ] || sleep 1000; psql -XAtqc 'INSERT INTO audit DEFAULT VALUES'";
    let mut pgfresh = scene.pgfresh(["faults", "--jobs", "1", "--", "sh", "-euc", script]);
    let child = pgfresh.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let runs = scene.directory.join("runs");
    wait_until("the fourth run", || fs::read_to_string(&runs).is_ok_and(|runs| runs.lines().count() == 4));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let outcome = collect(child);
    assert_eq!(outcome.code, Some(130), "{outcome}");
    assert!(outcome.stdout.contains("0 findings in 1 fault,"), "{outcome}");
    assert!(outcome.stdout.contains("not run: 4 faults, because a signal has ended the sweep"), "{outcome}");
    scene.assert_nothing_left(outcome);
}

#[test]
fn spent_budget_is_named() {
    let scene = scene();
    let command = ["psql", "-XAtqc", "INSERT INTO audit DEFAULT VALUES"];
    let outcome = scene.run([&["faults", "--budget", "0s", "--"][..], &command].concat());
    assert_eq!(outcome.code, Some(0), "{outcome}");
    assert!(outcome.stdout.contains("not run: 5 faults, because the budget of 0 s is spent"), "{outcome}");
}

#[test]
fn command_that_fails_without_faults_is_refused() {
    let scene = scene();
    let outcome = scene.run(["faults", "--", "sh", "-c", "echo no such luck; exit 3"]);
    assert_eq!(outcome.code, Some(3), "{outcome}");
    assert!(outcome.stderr.contains("no such luck"), "{outcome}");
    assert!(outcome.stderr.contains("the command fails without faults, with exit code 3"), "{outcome}");
    let outcome = scene.run(["faults", "--", "true"]);
    assert_eq!(outcome.code, Some(125), "{outcome}");
    assert!(outcome.stderr.contains("the command used no database"), "{outcome}");
}

#[test]
fn released_server_keeps_its_lease_number() {
    let scene = scene();
    let script = "PGOPTIONS='-c pgfresh.isolation=server' psql -XAtqc 'SELECT 1' own; \
        \"$PGFRESH\" release own; psql -XAtqc \"INSERT INTO audit (note) VALUES ('sold')\" || true";
    let outcome = sweep(&scene, 15, &[], &["sh", "-euc", script]);
    let report = report(&outcome);
    let expected = ["lost before", "40001", "40P01", "57014"].map(|fault| ("hidden_error", fault));
    assert_eq!(findings(&report), BTreeSet::from(expected), "{outcome}");
    let unseen = report["runs"]["not_seen"].to_string();
    assert!(unseen.contains("isolation server") && !unseen.contains("SQL has created"), "{outcome}");
}

#[test]
fn unknown_fault_is_refused_with_names() {
    let scene = scene();
    let command = ["psql", "-XAtqc", "INSERT INTO audit DEFAULT VALUES"];
    let outcome = scene.run([&["faults", "--only", "nothing", "--"][..], &command].concat());
    assert_eq!(outcome.code, Some(2), "{outcome}");
    assert!(outcome.stderr.contains("app:INSERT INTO audit DEFAULT VALUES:40001"), "{outcome}");
}
