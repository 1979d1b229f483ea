//! Tests the advice to set `linger`, which follows a run whose names waited for copies while
//! unused databases remained.

use std::fmt::Write as _;
use std::fs;

use crate::common::{Outcome, Scene, User, finish, ground};

const ADVICE: &str = "no client reused a name after its last session";

/// Lets psql connect to 60 names consecutively.
fn visit_names(scene: &Scene, options: &[&str]) -> Outcome {
    visit(scene, 60, options)
}

/// Lets psql connect to `names` names consecutively.
fn visit(scene: &Scene, names: u32, options: &[&str]) -> Outcome {
    let mut script = String::new();
    for name in 0..names {
        writeln!(script, "\\c name{name}\nSELECT 1;").unwrap();
    }
    let script = scene.write("visit.psql", &script);
    let psql = [ground::psql(), "-XAtqf", script.to_str().unwrap()];
    let outcome = finish(scene.pgfresh([&["run", "--sql=tables.sql"], options, &["--"], &psql[..]].concat()));
    assert_eq!(outcome.code, Some(0), "{outcome}");
    outcome
}

#[test]
fn unused_linger_is_advised_once_for_each_project() {
    let scene = Scene::with_empty_cache(User::Ourselves);
    scene.write("tables.sql", "CREATE TABLE words (word text)");
    let first = visit_names(&scene, &[]);
    assert_eq!(first.stderr.matches(ADVICE).count(), 1, "{first}");
    assert!(first.stderr.contains("linger = \"0\"") && first.stderr.contains("linger = \"5s\""), "{first}");
    let second = visit_names(&scene, &[]);
    assert!(!second.stderr.contains(ADVICE), "{second}");
}

#[test]
fn chosen_linger_is_not_advised_against() {
    let scene = Scene::with_empty_cache(User::Ourselves);
    scene.write("tables.sql", "CREATE TABLE words (word text)");
    for options in [&["--linger=5s"][..], &["--quiet"]] {
        let outcome = visit_names(&scene, options);
        assert!(!outcome.stderr.contains(ADVICE), "{outcome}");
    }
    scene.write("pgfresh.toml", "[database]\nlinger = \"5s\"\n");
    let outcome = visit_names(&scene, &[]);
    assert!(!outcome.stderr.contains(ADVICE), "{outcome}");
}

/// A connection to one name's database can't serve another name, so a pool is no remedy.
#[test]
fn profile_advises_linger_rather_than_a_pool() {
    let scene = Scene::with_empty_cache(User::Ourselves);
    scene.write("tables.sql", "CREATE TABLE words (word text)");
    let profiled = |options: &[&str]| {
        let outcome = visit(&scene, 200, &[&["--profile", "--report=out.json"], options].concat());
        assert!(!outcome.stderr.contains("in the suite's own pool"), "{outcome}");
        let text = fs::read_to_string(scene.directory.join("out.json")).unwrap();
        assert!(!text.contains("-0.0") && !text.contains("own pool"), "{text}");
        outcome
    };
    let outcome = profiled(&[]);
    assert_eq!(outcome.stderr.matches("Names wait for databases that linger").count(), 1, "{outcome}");
    assert!(outcome.stderr.contains("linger = \"0\"") && !outcome.stderr.contains(ADVICE), "{outcome}");
    let outcome = profiled(&["--linger=0"]);
    assert!(!outcome.stderr.contains("linger"), "{outcome}");
}

/// A session that asks for a reset needs its own connection.
#[test]
fn resets_at_connect_do_not_advise_a_pool() {
    let scene = Scene::with_empty_cache(User::Ourselves);
    scene.write("tables.sql", "CREATE TABLE words (word text)");
    let script = format!("for test in $(seq 30); do {} -XAtqc 'SELECT 1' one; done", ground::psql());
    let options = ["--sql=tables.sql", "--env", "PGOPTIONS=-c pgfresh.reset=on"];
    let outcome = scene.run([&["run", "--profile"], &options[..], &["--", "sh", "-euc", &script]].concat());
    assert_eq!(outcome.code, Some(0), "{outcome}");
    assert!(outcome.stderr.contains("30 started"), "{outcome}");
    assert!(!outcome.stderr.contains("in the suite's own pool"), "{outcome}");
}
