//! Tests `{test}`, which limits each run to one test, and the tests that `faults` leaves out.

use std::collections::BTreeSet;
use std::fs;

use super::{findings, report, scene, trials};

/// Returns a shell script with the tests `tests`. Its arguments name the tests to run; without arguments, it runs all
/// of them. Each test runs `body`, with the test's name in `$test` and its URL in `$url`.
fn suite(tests: &str, body: &str) -> String {
    format!(
        "echo \"${{1-}}\" >>runs; code=0; for test in {tests}; do case \" ${{*:-{tests}}} \" in *\" $test \"*) \
        url=$(\"$PGFRESH\" url $test); ({body}) || code=1; \"$PGFRESH\" release $test --test $test; esac; done; exit $code"
    )
}

const INSERT: &str = "psql -XAtqc \"INSERT INTO orders (item) VALUES ('$test')\" \"$url\"";
const SUITE: [&str; 4] = ["sh", "-eu", "suite.sh", "{test}"];

#[test]
fn placeholder_limits_runs_to_one_test() {
    let scene = scene();
    scene.write("suite.sh", &suite("bad good", &format!("{INSERT} || [ $test = bad ]")));
    let outcome = trials(&scene, 15, &[], &SUITE);
    let report = report(&outcome);
    let expected = ["lost before", "40001", "40P01", "57014"].map(|fault| ("hidden_error", fault));
    assert_eq!(findings(&report), BTreeSet::from(expected), "{outcome}");
    let runs = fs::read_to_string(scene.directory.join("runs")).unwrap();
    let count = |test: &str| runs.lines().filter(|line| *line == test).count();
    // The two counts of runs include two without faults, five with a fault, and four that confirm a finding.
    assert_eq!([count(""), count("good"), count("bad")], [1, 7, 11], "{runs}");
    let time = &report["runs"]["time"];
    let runs = ["without_faults", "with_fault", "second_runs"]
        .map(|purpose| time[purpose]["runs"].as_u64().unwrap());
    assert_eq!(runs, [5, 10, 4], "{outcome}");
    let name = report["findings"][0]["name"].as_str().unwrap();
    assert!(name.starts_with("bad:INSERT INTO orders"), "{outcome}");
    let again = trials(&scene, 15, &["--only", name], &SUITE);
    let again = super::report(&again);
    assert_eq!((findings(&again).len(), &again["runs"]["made"]), (1, &1.into()), "{outcome}");
}

#[test]
fn flaky_and_failing_tests_are_left_out() {
    let scene = scene();
    // The flaky test passes in the run with all tests, and in the first of its separate runs.
    let body = format!(
        "{INSERT} && case $test in broken) exit 3;; flaky) echo >>tries; [ $(wc -l <tries) -lt 3 ];; esac"
    );
    scene.write("suite.sh", &suite("broken flaky good", &body));
    let outcome = trials(&scene, 15, &["--report", "faults.xml"], &SUITE);
    let report = report(&outcome);
    assert_eq!((outcome.code, findings(&report)), (Some(0), BTreeSet::new()), "{outcome}");
    let left_out = report["runs"]["left_out"].to_string();
    for reason in [
        "{\"because\":\"fails without faults, with exit code 1, when it runs alone\",\"test\":\"broken\"}",
        "{\"because\":\"is flaky: one of two runs fails without faults, with exit code 1, when it runs alone\",\"test\":\"flaky\"}",
    ] {
        assert!(left_out.contains(reason), "{left_out}");
    }
    assert!(
        report["runs"]["not_seen"].to_string().contains("all tests together end with exit code 1"),
        "{outcome}"
    );
    let junit = fs::read_to_string(scene.directory.join("faults.xml")).unwrap();
    assert!(junit.contains("tests=\"4\" failures=\"0\" errors=\"0\" skipped=\"2\""), "{junit}");
    assert!(junit.contains("<property name=\"faults\" value=\"5\"/>"), "{junit}");
}

#[test]
fn test_that_hangs_alone_is_left_out() {
    let scene = scene();
    let body = format!("{INSERT} && case $test in stuck) [ $(wc -l <runs) = 1 ] || exec sleep 600;; esac");
    scene.write("suite.sh", &suite("stuck good", &body));
    let outcome = trials(&scene, 15, &[], &SUITE);
    let left_out = report(&outcome)["runs"]["left_out"].to_string();
    let reason = "{\"because\":\"hangs without faults, when it runs alone\",\"test\":\"stuck\"}";
    assert!(left_out.contains(reason), "{outcome}");
    assert_eq!(outcome.code, Some(0), "{outcome}");
}

#[test]
fn words_that_choose_other_tests_are_refused() {
    let scene = scene();
    scene.write("suite.sh", &suite("one two", INSERT));
    let outcome = trials(&scene, 15, &["--jobs", "1"], &["sh", "-eu", "suite.sh", "one", "two", "{test}"]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(2), ""), "{outcome}");
    let expected = "pgfresh: the command for the test \"one\" also runs \"two\"";
    assert!(
        outcome.stderr.contains(expected) && outcome.stderr.contains("{test} must be the only argument"),
        "{outcome}"
    );
}

#[test]
fn names_unknown_to_the_runner_are_named() {
    let scene = scene();
    let suite = suite("one", INSERT).replace("--test $test", "--test the-$test");
    scene.write("suite.sh", &format!("psql -XAtqc 'SELECT note FROM audit' other; {suite}"));
    let outcome = trials(&scene, 15, &[], &SUITE);
    assert_eq!(outcome.code, Some(125), "{outcome}");
    let because = report(&outcome)["runs"]["left_out"][0]["because"].clone();
    assert_eq!(because, "the command did not run this test when its name replaced {test}", "{outcome}");
    assert!(outcome.stderr.contains("no fault was tried"), "{outcome}");
}
