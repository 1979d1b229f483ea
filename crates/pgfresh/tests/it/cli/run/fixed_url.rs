//! Tests suites that weren't changed for pgfresh: they have a fixed URL, or don't use a server.

use std::fs;
use std::net::TcpListener;

use serde_json::Value;

use crate::common::{Outcome, Scene, User, finish, ground};

const NO_SESSION: &str =
    "pgfresh: No session began: the command did not connect to the server. Does it read DATABASE_URL or PG*?";

/// Returns a port that is free at this moment.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Runs `pgfresh run` for a suite with a fixed URL. If another program takes the port first, tries another port.
fn run_with_fixed_url(options: &[&str]) -> (Scene, Outcome) {
    for _ in 0..20 {
        let scene = Scene::new(User::Ourselves);
        let port = free_port().to_string();
        let url = format!("postgres://postgres:secret@localhost:{port}/testdb");
        // Only the URL tells psql where the server is.
        let script = "exec env -i \"$0\" -XAtqc 'SELECT current_database()' \"$1\"";
        let words = [&["run", "--port", &port], options, &["--", "sh", "-c", script, ground::psql(), &url]];
        let mut command = scene.pgfresh(words.concat());
        command.env("PGFRESH_PASSWORD", "secret");
        let outcome = finish(command);
        if !outcome.stderr.contains("could not listen") {
            return (scene, outcome);
        }
    }
    panic!("no port stays free");
}

#[test]
fn run_serves_at_a_fixed_port() {
    for options in [&[][..], &["--profile"], &["--tls"]] {
        let (_scene, outcome) = run_with_fixed_url(options);
        assert_eq!((outcome.code, &*outcome.stdout), (Some(0), "testdb\n"), "{options:?}: {outcome}");
        assert!(!outcome.stderr.contains("No session"), "{outcome}");
    }
}

#[test]
fn comparisons_serve_at_a_fixed_port() {
    let (_scene, outcome) = run_with_fixed_url(&["--compare", "-n", "2"]);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    assert!(outcome.stderr.contains("All 4 runs ended the same way: exit code 0."), "{outcome}");
    assert!(outcome.stderr.contains("as fast as on a durable server"), "{outcome}");
}

#[test]
fn a_taken_port_is_an_error() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let scene = Scene::new(User::Ourselves);
    for option in [&[][..], &["--compare"], &["--profile"]] {
        let words = [&["run", "--port", &port], option, &["--", "touch", "ran"]].concat();
        let outcome = scene.run(words);
        assert_eq!(outcome.code, Some(125), "{outcome}");
        let message = format!("pgfresh: could not listen on 127.0.0.1:{port}: Address already in use");
        assert!(
            outcome.stderr.contains(&message) && outcome.stderr.contains("HINT:  Another program"),
            "{outcome}"
        );
        assert!(!scene.directory.join("ran").exists());
    }
}

#[test]
fn run_says_that_no_session_began() {
    let scene = Scene::new(User::Ourselves);
    for (options, script, code, expected) in [
        (&[][..], "exit 0", 0, 1),
        (&[], "exit 3", 3, 1),
        (&["--profile"], "exit 0", 0, 1),
        (&["--quiet"], "exit 0", 0, 0),
        (&[], "$0 -qc '' some", 0, 0),
        (&["--isolation", "rollback"], "$0 -qc '' some", 0, 0),
    ] {
        let words = [&["run"], options, &["--", "sh", "-c", script, ground::psql()]].concat();
        let outcome = scene.run(words);
        assert_eq!(outcome.code, Some(code), "{outcome}");
        assert_eq!(outcome.stderr.matches(NO_SESSION).count(), expected, "{options:?} {script}: {outcome}");
    }
}

#[test]
fn a_comparison_without_a_session_states_no_gain() {
    let scene = Scene::new(User::Ourselves);
    let outcome = scene.run(["run", "--compare", "-n", "1", "--", "true"]);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    assert!(outcome.stderr.contains(&format!("{NO_SESSION} No gain is reported.\n")), "{outcome}");
    assert!(!outcome.stderr.contains("as fast"), "{outcome}");
    // Sessions on only one side don't allow a comparison either.
    let used_once = "if test -e used; then exit 0; fi; touch used; $0 -qc '' some";
    let words = ["run", "--compare", "-n", "1", "--", "sh", "-c", used_once, ground::psql()];
    let outcome = scene.run(words);
    assert!(
        outcome.stderr.contains("In 1 of 2 runs, no session began, so no gain is reported."),
        "{outcome}"
    );
    assert!(!outcome.stderr.contains("as fast"), "{outcome}");
}

/// Runs `script` under `run --profile`. The run must succeed. Returns its outcome and the report.
fn profile_of(script: &str) -> (Outcome, Value) {
    let scene = Scene::new(User::Ourselves);
    scene.write(
        "lookups.sql",
        &(0..60).map(|key| format!("SELECT {key} AS session;\n")).collect::<Vec<_>>().concat(),
    );
    let words = ["run", "--profile", "--report", "out.json", "--", "sh", "-euc", script, ground::psql()];
    let outcome = scene.run(words);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    let report = fs::read_to_string(scene.directory.join("out.json")).unwrap();
    (outcome, serde_json::from_str(&report).unwrap())
}

/// Returns the finding's index among all findings.
fn finding(report: &Value, name: &str) -> Option<usize> {
    report["findings"].as_array().unwrap().iter().position(|finding| finding["name"] == name)
}

#[test]
fn tests_sharing_database_cause_no_n_plus_one() {
    let each = "$0 -XAtqf lookups.sql test_app";
    let (outcome, report) = profile_of(&format!("$0 -qc 'SELECT 1' postgres; {each}"));
    assert_eq!(finding(&report, "One query for each row (N+1)"), None, "{report}");
    assert!(!outcome.stderr.contains("N+1:"), "{outcome}");
    assert!(outcome.stderr.contains("\ntests     Tests share databases"), "{outcome}");
    let advice = "run \"pgfresh release DATABASE --test NAME\" after each";
    assert!(report["tables"].to_string().replace('\\', "").contains(advice), "{report}");
    // With `release --test`, the client tells pgfresh that a test used the database.
    let program = ground::program().display();
    let (outcome, report) = profile_of(&format!("{each}; {program} release test_app --test one"));
    assert!(finding(&report, "One query for each row (N+1)").is_some(), "{report}");
    assert!(!outcome.stderr.contains("Tests share databases"), "{outcome}");
}

#[test]
fn database_per_test_finding_precedes_pool_finding() {
    let (_, report) = profile_of(
        "for test in 1 2 3 4 5 6 7 8; do $0 -qc \"CREATE DATABASE own_$test\" postgres
         $0 -qc 'SELECT 1' own_$test; $0 -qc \"DROP DATABASE own_$test\" postgres; done",
    );
    let databases = finding(&report, "Tests create and drop databases with SQL").expect("it is found");
    let pool = finding(&report, "Tests open many sessions");
    assert!(pool.is_none_or(|pool| databases < pool), "{report}");
    let evidence = report["findings"][databases]["evidence"].as_str().unwrap();
    assert!(evidence.contains("24 sessions that exist for that"), "{evidence}");
}
