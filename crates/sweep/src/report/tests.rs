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
    points(&steady_leases(vec![lease.clone()], vec![lease]).0).0
}

fn report() -> SweepReport {
    let all = commit_points();
    let find = |name: &str| all.iter().find(|point| point.is_named(name)).unwrap().clone();
    let finding = |name: &str, kind| SweepFinding { point: find(name), kind, output: String::new() };
    let hang = FindingKind::Hangs(Duration::from_secs(12));
    SweepReport {
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
        runs: 7,
        recovered: 4,
        ..SweepReport::default()
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
      goes on in the failed transaction: 2 more statements fail with 25P02
      again: pgfresh faults --only 'shop::test_pay:INSERT INTO pays VALUES (…):40001' -- pytest {test}

3 findings in 7 faults, each in a run of its own, in 8 s
  4 passed, with the rows of a run without faults
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
    assert!(report().report().to_junit().contains("failures=\"1\""));
}

#[test]
fn words_are_quoted_for_a_shell() {
    for (word, quoted) in [
        ("a::b", "a::b"),
        ("", "''"),
        ("it's (a)", "'it'\\''s (a)'"),
        ("$HOME", "'$HOME'"),
        ("{test}", "{test}"),
    ] {
        assert_eq!(in_shell(word), quoted);
    }
}

#[test]
fn name_selects_test_statement_or_fault() {
    let all = commit_points();
    let count = |name: &str| crate::chosen(all.clone(), &[name.to_owned()]).len();
    for (name, expected) in [
        ("shop::test_pay", 7),
        ("shop::test_pay:COMMIT", 3),
        ("shop::test_pay:COMMIT:40001", 1),
        ("shop::test_pa", 0),
        ("shop", 7),
    ] {
        assert_eq!(count(name), expected, "{name}");
    }
    assert_eq!(crate::chosen(all, &[]).len(), 7);
}
