//! Tests that `faults` finds handlers that lose or duplicate rows or hide errors, and that it
//! rejects invalid options.

mod hidden_writes;
mod interruptions;
mod outputs;
mod placeholder;
mod suites;

use std::collections::BTreeSet;

use serde_json::Value;

use crate::common::{Outcome, Scene, User, ground, on_every_major, postgres};

on_every_major! {
    blind_retry_doubles_rows
    hidden_errors_are_found
    careful_handlers_have_no_finding
}

const SCHEMA: &str = "CREATE TABLE orders (id int GENERATED ALWAYS AS IDENTITY, key text UNIQUE, item text); \
    CREATE TABLE audit (at timestamptz DEFAULT clock_timestamp(), note text);";

/// Shell function that runs its arguments as statements in one session and one transaction, and
/// fails if any of them does.
const TRANSACTION: &str = "psql() { command psql -XAtq -v ON_ERROR_STOP=1 \"$@\"; }; \
    transaction() { psql -c BEGIN -c \"$1\" -c COMMIT; }; retry() { \"$@\" || \"$@\" || \"$@\"; };";

fn scene() -> Scene {
    let scene = Scene::new(User::Ourselves);
    scene.write("pgfresh.toml", "[template]\nsql = \"schema.sql\"\n");
    scene.write("schema.sql", SCHEMA);
    scene
}

fn trials(scene: &Scene, major: u32, options: &[&str], command: &[&str]) -> Outcome {
    let mut pgfresh = scene.pgfresh([&["faults", "--json"], options, &["--"], command].concat());
    pgfresh.env("PGFRESH_POSTGRES", postgres(major)).env("PGFRESH", ground::program());
    crate::common::finish(pgfresh)
}

fn shell(scene: &Scene, major: u32, script: &str) -> (Outcome, Value) {
    let outcome = trials(scene, major, &[], &["sh", "-euc", &format!("{TRANSACTION} {script}")]);
    let report = report(&outcome);
    (outcome, report)
}

fn report(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|_| panic!("{outcome}"))
}

/// Returns the kind and fault of each finding.
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
    // COMMIT has three faults, and the preceding write has four.
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
    // A test that fails doesn't have a finding, because it shows the error.
    assert_eq!((&report["runs"]["recovered"], &report["runs"]["shown"]), (&7.into(), &7.into()), "{outcome}");
}

#[test]
fn released_server_keeps_its_lease_number() {
    let scene = scene();
    let script = "PGOPTIONS='-c pgfresh.isolation=server' psql -XAtqc 'SELECT 1' own; \
        \"$PGFRESH\" release own; psql -XAtqc \"INSERT INTO audit (note) VALUES ('sold')\" || true";
    let outcome = trials(&scene, 15, &[], &["sh", "-euc", script]);
    let report = report(&outcome);
    let expected = ["lost before", "40001", "40P01", "57014"].map(|fault| ("hidden_error", fault));
    assert_eq!(findings(&report), BTreeSet::from(expected), "{outcome}");
    let unseen = report["runs"]["not_seen"].to_string();
    assert!(unseen.contains("isolation server") && !unseen.contains("SQL has created"), "{outcome}");
}

#[test]
fn wrong_options_are_refused() {
    let scene = scene();
    let command = ["psql", "-XAtqc", "INSERT INTO audit DEFAULT VALUES"];
    for (options, expected) in [
        (&["--budget", "soon"][..], "expected a time with its unit"),
        (&["--budget", "5"], "expected a time with its unit"),
        (&["--jobs", "0"], "expected a number from 1 to 256"),
        (&["--jobs", "257"], "expected a number from 1 to 256"),
        (&["--budget", "-5s"], "invalid value '-5s' for '--budget <TIME>': expected a time with its unit"),
        (&["--jobs", "-1"], "invalid value '-1' for '--jobs <N>': expected a number from 1 to 256"),
        (&["-x", "1"], "HINT:  \"pgfresh faults --help\" lists what it accepts.\n"),
        (&["--only", ""], "it is empty"),
        (&["--ignore", ""], "it is empty"),
        (&["--report", "faults.pdf"], "its name must end with"),
        (&["--report", "nowhere/faults.xml"], "nowhere/faults.xml"),
        (&["--env", "URL"], "--env"),
        (&["--only", "nothing"], "app:INSERT INTO audit DEFAULT VALUES:40001"),
        (
            &["--only", "app", "--only", "nothing"],
            "no fault has a name that begins with \"nothing\" (--only)",
        ),
        (&["--ignore", "audit.nothing"], "no table and no column has the name \"audit.nothing\" (--ignore)"),
    ] {
        let outcome = scene.run([&["faults"], options, &["--"], &command].concat());
        let code = if options[1].contains("nowhere") { 125 } else { 2 };
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(code), ""), "{options:?}: {outcome}");
        assert!(outcome.stderr.contains(expected), "{options:?}: {outcome}");
        scene.assert_nothing_left(outcome);
    }
}

#[test]
fn beginning_of_a_name_chooses_faults() {
    let scene = scene();
    let script = format!("{TRANSACTION} transaction \"INSERT INTO orders (item) VALUES ('lamp')\"");
    for (only, runs) in [("ap", 7), ("app:COMMIT:lost", 2), ("app:COMMIT", 3)] {
        let outcome = trials(&scene, 15, &["--only", only], &["sh", "-euc", &script]);
        assert_eq!(report(&outcome)["runs"]["made"], runs, "{only}: {outcome}");
    }
}
