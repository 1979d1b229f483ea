//! Tests advice on real servers: the dangerous statements in docs/migrations.md get advice, and
//! the safe sequences don't.

use std::collections::HashMap;

use migrations::suite::broken;
use migrations::testing::transcript_in;
use migrations::{AdviceTopic, Laboratory, ReportedStatement, StatementAdvice, advise};
use pgwire::{SessionTranscript, StatementError};

use super::advice_cases::CASES;
use super::blocking::suite;
use super::page::{Example, Migration, PAGE, examples};
use crate::common::on_every_major;
use crate::common::provisioner::provisioner;

/// Suite for the page's examples.
pub(super) const SUITE: &str = "SELECT orders_of(7)";

/// Tables for the page's examples.
pub(super) const SCHEMA: &str = include_str!("advice.sql");

/// Number of databases on each server.
const AT_ONCE: usize = 25;

on_every_major! {
    only_dangerous_examples_get_advice
    cases_get_the_advice_of_their_topic
}

fn only_dangerous_examples_get_advice(major: u32) {
    let examples: Vec<_> = examples().into_iter().filter(|example| example.first_major <= major).collect();
    let migrations: Vec<_> = examples.iter().map(|example| &example.migration).collect();
    for (example, advice) in examples.iter().zip(advice_for(major, &migrations)) {
        let Example { heading, is_safe, migration, .. } = example;
        let all: Vec<_> = advice.into_iter().flatten().collect();
        let sql = migration.statements.join(";\n");
        if *is_safe {
            assert!(all.is_empty(), "{major}, {heading}:\n{sql}\n{all:#?}");
        } else {
            let is_found = all.iter().any(|advice| advice.topic.heading() == heading);
            assert!(is_found, "{major}, {heading}:\n{sql}\n{all:#?}");
        }
    }
}

fn cases_get_the_advice_of_their_topic(major: u32) {
    let cases: Vec<_> = CASES.iter().filter(|case| case.first_major <= major).collect();
    let migrations: Vec<_> = cases
        .iter()
        .map(|case| {
            let statements = case.statements.iter().map(|statement| (*statement).to_owned()).collect();
            Migration { statements, knows_suite: false }
        })
        .collect();
    let mut wrong = Vec::new();
    for (case, advice) in cases.iter().zip(advice_for(major, &migrations.iter().collect::<Vec<_>>())) {
        let anchors: Vec<_> = advice.iter().flatten().map(|advice| advice.topic.anchor()).collect();
        if anchors.join(" ") != case.topics {
            wrong.push(format!("{:?}: {advice:#?}, not {:?}", case.statements, case.topics));
        }
    }
    assert!(wrong.is_empty(), "{major}:\n{}", wrong.join("\n"));
}

#[test]
fn page_has_a_section_for_each_topic() {
    for topic in AdviceTopic::ALL {
        let heading = format!("\n### {}\n", topic.heading());
        assert!(PAGE.contains(&heading), "{heading}");
        let has_example =
            examples().iter().any(|example| example.heading == topic.heading() && example.is_safe);
        assert!(has_example, "{heading}");
    }
}

/// Runs each migration in a separate database, and returns the advice for each statement.
fn advice_for(major: u32, migrations: &[&Migration]) -> Vec<Vec<Vec<StatementAdvice>>> {
    let (provisioner, _watchdog) = provisioner(major, SCHEMA);
    let mut all = Vec::new();
    for chunk in migrations.chunks(AT_ONCE) {
        let mut laboratory = Laboratory::start(&provisioner).unwrap();
        let names: Vec<_> = (0..chunk.len()).map(|number| format!("migration_{number}")).collect();
        let transcripts: Vec<_> = names
            .iter()
            .zip(chunk)
            .map(|(name, migration)| transcript(name, &migration.statements))
            .collect();
        let observations = laboratory.observe(&transcripts).unwrap();
        let fresh = laboratory.fresh_database().unwrap();
        let mut before = laboratory.session(&fresh).unwrap();
        let sessions: Vec<_> = names.iter().map(|name| laboratory.session(name).unwrap()).collect();
        assert_eq!(observations.unseen, Vec::<String>::new(), "{major}");
        let mut statements: HashMap<String, Vec<ReportedStatement>> = HashMap::new();
        for observed in observations.statements {
            let reported = ReportedStatement { observed, ..ReportedStatement::default() };
            statements.entry(reported.observed.database.clone()).or_default().push(reported);
        }
        for ((name, migration), mut after) in names.iter().zip(chunk).zip(sessions) {
            let reported = statements.get_mut(name).unwrap();
            let observed: Vec<_> = reported.iter().map(|one| one.observed.clone()).collect();
            for (place, one) in broken(&mut before, &mut after, &suite(SUITE), &observed).unwrap() {
                reported[place.unwrap()].breaks.push(one);
            }
            all.push(advise(&statements[name], &observations.sizes, migration.knows_suite));
        }
        laboratory.stop().unwrap();
    }
    all
}

/// Returns a session's transcript. A statement that begins with an SQLSTATE, such as `23502! ALTER …`, fails with it.
fn transcript(database: &str, statements: &[String]) -> SessionTranscript {
    let parts: Vec<_> = statements
        .iter()
        .map(|statement| match statement.split_once("! ") {
            Some((code, sql)) if code.len() == 5 => (Some(code), sql),
            _ => (None, statement.as_str()),
        })
        .collect();
    let sql: Vec<_> = parts.iter().map(|(_, sql)| *sql).collect();
    let mut transcript = transcript_in(database, &sql);
    let mut has_failed = false;
    for (request, (code, sql)) in transcript.requests.iter_mut().zip(&parts) {
        let Some(outcome) = request.outcome.as_mut() else { continue };
        if sql.starts_with("CREATE MATERIALIZED VIEW") {
            outcome.tags = vec!["SELECT 500".to_owned()];
        }
        if let Some(code) = code {
            outcome.error = Some(StatementError { sqlstate: (*code).to_owned(), message: String::new() });
            outcome.tags.clear();
            has_failed = outcome.status == b'T';
            outcome.status = if has_failed { b'E' } else { b'I' };
        } else if has_failed && *sql == "COMMIT" {
            outcome.tags = vec!["ROLLBACK".to_owned()];
            has_failed = false;
        }
    }
    transcript
}
