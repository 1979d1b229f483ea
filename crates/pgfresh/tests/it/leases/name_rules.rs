//! Tests which names in a connection pgfresh turns into databases. It treats other names like a plain server.

use crate::common::gateway::Gateway;
use crate::common::{Scene, User, ground, on_every_major};

on_every_major! {
    an_excluded_name_does_not_exist
    rules_hold_in_every_isolation
    http_leases_of_excluded_names_are_refused
}

const TEMPLATE: &str = "CREATE TABLE item (id int)";

impl Gateway {
    /// Asserts that the database doesn't exist, and that the error is PostgreSQL's.
    fn assert_missing(&self, name: &str) {
        let expected = format!("3D000: database \"{name}\" does not exist");
        assert_eq!(self.connect(name, "").err().expect(name).to_string(), expected);
        // In rollback isolation, a database keeps its last lease's name.
        if !name.starts_with("rollback") {
            assert_eq!(self.direct(name, "SELECT 1").expect_err(name).to_string(), expected);
        }
    }
}

fn an_excluded_name_does_not_exist(major: u32) {
    let gateway = Gateway::start(major, TEMPLATE, &["--except", "does_not_exist*", "--except", "gone"]);
    for name in ["does_not_exist", "does_not_exist_7", "gone"] {
        gateway.assert_missing(name);
    }
    gateway.connect("gone_too", "").unwrap().rows("SELECT FROM item").unwrap();
    // SQL can create and drop these databases, as on any server.
    let admin = |sql: &str| gateway.connect("postgres", "").unwrap().rows(sql).unwrap();
    admin("CREATE DATABASE gone");
    assert_eq!(gateway.connect("gone", "").unwrap().value("SELECT current_database()").unwrap(), "gone");
    admin("DROP DATABASE gone WITH (FORCE)");
    gateway.assert_missing("gone");
}

fn rules_hold_in_every_isolation(major: u32) {
    for isolation in ["clone", "rollback", "server"] {
        let options = ["--names", "test_*", "--names", "app", "--except=test_none", "--isolation", isolation];
        let gateway = Gateway::start(major, TEMPLATE, &options);
        for name in ["other", "test", "test_none"] {
            gateway.assert_missing(name);
        }
        for name in ["test_1", "app"] {
            assert_eq!(gateway.connect(name, "").unwrap().value("SELECT count(*) FROM item").unwrap(), "0");
        }
        // An HTTP lease without a name gets a generated name, which exists until the lease ends.
        let (status, lease) = gateway.http("POST", "/v1/databases", "{}");
        assert_eq!(status, 201, "{lease}");
        let name = lease["name"].as_str().unwrap();
        gateway.connect(name, "").unwrap().close();
        assert_eq!(gateway.http("DELETE", &format!("/v1/databases/{name}"), "").0, 204);
        gateway.assert_missing(name);
    }
}

fn http_leases_of_excluded_names_are_refused(major: u32) {
    let gateway = Gateway::start(major, TEMPLATE, &["--except", "none"]);
    let (status, problem) = gateway.http("POST", "/v1/databases", r#"{"name": "none"}"#);
    assert_eq!((status, problem["error"]["code"].as_str()), (400, Some("42602")), "{problem}");
    let problem = &problem["error"];
    assert_eq!(problem["message"], "cannot create database \"none\": the rules for names exclude it");
    assert!(problem["hint"].as_str().unwrap().contains("[databases] in pgfresh.toml"), "{problem}");
}

#[test]
fn the_file_names_the_databases_that_are_created() {
    let scene = Scene::new(User::Ourselves);
    scene.write("pgfresh.toml", "[databases]\nnames = [\"test_*\", \"app\"]\nexcept = [\"test_none\"]\n");
    let script = "for name in test_1 app test_none other; do $0 -XAtqc 'SELECT current_database()' $name 2>&1 || true; done";
    let outcome = scene.run(["run", "--", "sh", "-c", script, ground::psql()]);
    let said: Vec<_> = outcome.stdout.lines().map(|line| line.rsplit("FATAL:  ").next().unwrap()).collect();
    let missing = |name: &str| format!("database \"{name}\" does not exist");
    assert_eq!(said, ["test_1", "app", &missing("test_none"), &missing("other")], "{outcome}");
}

#[test]
fn comparisons_name_tests_failing_on_both_sides() {
    let scene = Scene::new(User::Ourselves);
    let script =
        "if $0 -qc '' does_not_exist; then echo '--- FAIL: Test_Client_Start_Error (0.01s)'; exit 1; fi";
    let run = |options: &[&str]| {
        let words = [&["run", "--compare", "-n", "1"], options, &["--", "sh", "-c", script, ground::psql()]];
        scene.run(words.concat())
    };
    let outcome = run(&[]);
    assert_eq!(outcome.code, Some(1), "{outcome}");
    let named = "pgfresh: failed in all runs, on each server: Test_Client_Start_Error\nHINT:  ";
    assert!(outcome.stderr.contains(named) && outcome.stderr.contains("--except"), "{outcome}");
    let outcome = run(&["--except", "does_not_exist"]);
    assert!(outcome.code == Some(0) && !outcome.stderr.contains("FAIL"), "{outcome}");
}
