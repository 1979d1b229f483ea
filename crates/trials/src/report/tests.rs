use std::time::{Duration, Instant};

use pgwire::StatementKind;

use super::*;
use crate::points::points;
use crate::recording::{Call, LeaseRecord, RanStatement, StatementResult};
use crate::steady::steady_leases;

fn commit_points() -> Vec<Point> {
    let statement = |text: &str, kind, tag: &str| RanStatement {
        text: text.to_owned(),
        kind,
        session: 1,
        call: Call::Query,
        sent: Instant::now(),
        in_transaction: true,
        follows_work: false,
        result: StatementResult::Done(tag.to_owned()),
    };
    let lease = LeaseRecord {
        database: "app".to_owned(),
        test: Some("shop::test_pay".to_owned()),
        statements: vec![
            statement("INSERT INTO pays VALUES (1)", StatementKind::Insert, "INSERT 0 1"),
            statement("COMMIT", StatementKind::Commit, "COMMIT"),
        ],
        ..LeaseRecord::default()
    };
    points(&steady_leases(vec![lease.clone()], vec![lease], &[]).0).0
}

fn report() -> TrialsReport {
    let all = commit_points();
    let find = |name: &str| all.iter().find(|point| point.to_string() == name).unwrap().clone();
    let finding = |name: &str, kind| TrialFinding { point: find(name), kind, output: String::new() };
    let hang = FindingKind::Hangs(Duration::from_secs(12));
    TrialsReport {
        command: RepeatableCommand {
            options: Vec::new(),
            words: vec!["pytest".to_owned(), "{test}".to_owned()],
        },
        seconds: 8.2,
        findings: vec![
            finding("shop::test_pay:COMMIT:lost before", hang.clone()),
            finding("shop::test_pay:COMMIT:lost after", hang),
            finding("shop::test_pay:INSERT INTO pays VALUES (…):40001", FindingKind::FailedTransaction(2)),
        ],
        time: TimeSpent {
            recording: RunTime { runs: 2, seconds: 1.25 },
            trying: RunTime { runs: 7, seconds: 4.0 },
            confirming: RunTime { runs: 1, seconds: 0.5 },
            jobs: 2,
        },
        tests: vec![
            TriedTest { label: "shop::test_pay".to_owned(), runs: 7, not_run: 1 },
            TriedTest { label: "shop::test_late".to_owned(), runs: 0, not_run: 2 },
            TriedTest { label: "shop::test_ping".to_owned(), runs: 0, not_run: 0 },
        ],
        left_out: vec![UntriedTest { test: "shop::test_luck".to_owned(), because: "it is flaky".to_owned() }],
        runs: 7,
        recovered: 4,
        not_run: vec![find("shop::test_pay:COMMIT:40001")],
        not_run_because: "time is up".to_owned(),
        ..TrialsReport::default()
    }
}

#[test]
fn text_shows_faults_of_a_statement_together() {
    let text = report().to_text(100);
    let expected = "shop::test_pay
  COMMIT
      fault: connection lost before it; connection lost after it
      hangs: it does not end within 12 s
      again: pgfresh faults --only shop::test_pay:COMMIT -- pytest {test}
  INSERT INTO pays VALUES (…)
      fault: 40001, serialization failure
      continues in the failed transaction: 2 more statements fail with 25P02
      again: pgfresh faults --only 'shop::test_pay:INSERT INTO pays VALUES (…):40001' -- pytest {test}

3 findings in 7 faults, each in a run of its own, in 8 s
  4 passed, with the rows of a run without faults
time: 2 runs without faults 1.2 s, 7 runs with a fault 4.0 s, 1 second run of a finding 0.5 s; up to
      2 at the same time
not run: 1 fault, because time is up; no fault of shop::test_late
left out: shop::test_luck: it is flaky
never tried: ";
    assert!(text.starts_with(expected), "{text}");
}

#[test]
fn json_has_request_and_command_of_each_finding() {
    let json = report().report().to_json();
    let finding = &json["findings"][1];
    assert_eq!(finding["request"]["at"], "after commit");
    assert_eq!(finding["again"], "pgfresh faults --only 'shop::test_pay:COMMIT:lost after' -- pytest {test}");
    assert_eq!(json["runs"]["recovered"], 4);
    assert_eq!(json["runs"]["not_run"], serde_json::json!(["shop::test_pay:COMMIT:40001"]));
    assert_eq!(json["runs"]["left_out"][0]["because"], "it is flaky");
}

#[test]
fn words_are_quoted_for_a_shell() {
    for (word, quoted) in [
        ("a::b", "a::b"),
        ("", "''"),
        ("it's (a)", "'it'\\''s (a)'"),
        ("$HOME", "'$HOME'"),
        ("{test}", "{test}"),
        ("\"a\nb'c\\\"", "$'\"a\\nb\\'c\\\\\"'"),
        ("\u{1b}[2J\u{9b}ä", "$'\\x1b[2J\\xc2\\x9bä'"),
    ] {
        assert_eq!(in_shell(word), quoted);
    }
}

#[test]
fn junit_has_each_test_and_skips_untried_ones() {
    let junit = report().report().to_junit();
    assert!(junit.contains("tests=\"5\" failures=\"1\" errors=\"0\" skipped=\"3\""), "{junit}");
    for part in [
        "no fault was tried, because time is up",
        "no fault was tried: it is flaky",
        "no statement that can have a fault",
        "not run: 1 fault, because time is up",
    ] {
        assert!(junit.contains(part), "{part}: {junit}");
    }
}

#[test]
fn every_report_names_what_was_not_tried() {
    let report = report().report();
    for text in [report.to_markdown(), report.to_csv(), report.to_text(200), report.to_html("")] {
        assert!(text.contains("luck") && text.contains("it is flaky"), "{text}");
        assert!(text.contains("40001, serialization failure") && text.contains("time is up"), "{text}");
    }
}

#[test]
fn name_selects_test_statement_or_fault() {
    let mut all = commit_points();
    let mut with_colon = all.clone();
    for point in &mut with_colon {
        point.label.push_str(":twice");
    }
    all.extend(with_colon);
    let count = |name: &str| match crate::chosen(&all, &[name.to_owned()]) {
        Ok(points) => points.len(),
        Err(unknown) => {
            assert_eq!(unknown, name);
            0
        }
    };
    for (name, expected) in [
        ("shop::test_pay", 7),
        ("shop::test_pay:twice", 7),
        ("shop::test_pay:COMMIT", 3),
        ("shop::test_pay:COMMIT:40001", 1),
        ("shop::test_pay:twice:COMMIT:40001", 1),
        ("shop::test_pay:COMMIT:lost", 2),
        ("shop::test_pa", 14),
        ("shop", 14),
        ("pay", 0),
    ] {
        assert_eq!(count(name), expected, "{name}");
    }
    assert_eq!(crate::chosen(&all, &[]).map(|points| points.len()), Ok(14));
    let names = ["shop".to_owned(), "nothing".to_owned()];
    assert_eq!(crate::chosen(&all, &names), Err("nothing"));
    assert!(crate::may_mean("shop::test_pay:COMMIT", "shop::test_pay"));
    assert!(crate::may_mean("shop", "shop::test_pay"));
    assert!(!crate::may_mean("shop::test_pay_twice", "shop::test_pay"));
}
