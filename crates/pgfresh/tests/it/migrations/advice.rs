//! Advice on real servers: docs/migrations.md has dangerous statements, which get it, and safe sequences, which get none.

use std::collections::HashMap;

use migrations::testing::transcript_in;
use migrations::{AdviceTopic, Laboratory, ReportedStatement, StatementAdvice, advise};
use pgwire::{SessionTranscript, StatementError, split_statements};

use super::advice_cases::CASES;
use crate::common::on_every_major;
use crate::common::provisioner::provisioner;

const SCHEMA: &str = include_str!("advice.sql");
const PAGE: &str = include_str!("../../../../../docs/migrations.md");

/// Number of databases in one server.
const AT_ONCE: usize = 25;

/// The statements of a migration. With `knows_suite`, none of the suite's fails after it.
struct Migration {
    statements: Vec<String>,
    knows_suite: bool,
}

/// A part of a code block of the page.
struct Example {
    heading: String,
    is_safe: bool,
    first_major: u32,
    migration: Migration,
}

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
        assert!(has_example || topic == AdviceTopic::OldCode, "{heading}");
    }
}

/// Returns the examples of all sections.
fn examples() -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let (mut heading, mut is_sql) = (String::new(), false);
    for line in PAGE.lines() {
        if let Some(text) = line.strip_prefix("### ") {
            text.clone_into(&mut heading);
        } else if line.starts_with("```") {
            is_sql = line == "```sql";
        } else if let Some(title) = line.strip_prefix("-- ").filter(|_| is_sql) {
            let (kind, rest) = title.split_once(' ').unwrap_or((title, ""));
            assert!(matches!(kind, "safe" | "dangerous"), "{line}");
            let first_major = rest.strip_prefix("from ").map_or(13, |from| from[..2].parse().unwrap());
            let migration = Migration { statements: Vec::new(), knows_suite: rest.starts_with("once") };
            let heading = heading.clone();
            examples.push(Example { heading, is_safe: kind == "safe", first_major, migration });
        } else if is_sql {
            let text = &mut examples.last_mut().unwrap().migration.statements;
            // A statement begins behind the comment of the one before it.
            text.push(line.split(" -- ").next().unwrap_or_default().to_owned());
        }
    }
    for example in &mut examples {
        let text = example.migration.statements.join("\n");
        let split = split_statements(&text).into_iter();
        let mut statements: Vec<_> = split.map(|statement| refused(example, statement)).collect();
        if example.heading != AdviceTopic::LockTimeout.heading() {
            statements.insert(0, "SET lock_timeout = '2s'".to_owned());
        }
        example.migration.statements = statements;
    }
    examples
}

/// Adds the error to the statement of the page that PostgreSQL refuses.
fn refused(example: &Example, statement: &str) -> String {
    let is_refused = example.heading == AdviceTopic::Enum.heading() && !example.is_safe;
    if is_refused && statement.starts_with("UPDATE") {
        format!("55P04! {statement}")
    } else {
        statement.to_owned()
    }
}

/// Runs each migration in its database, and returns the advice for each of its statements.
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
        laboratory.stop().unwrap();
        assert_eq!(observations.unseen, Vec::<String>::new(), "{major}");
        let mut statements: HashMap<String, Vec<ReportedStatement>> = HashMap::new();
        for observed in observations.statements {
            let reported = ReportedStatement { observed, ..ReportedStatement::default() };
            statements.entry(reported.observed.database.clone()).or_default().push(reported);
        }
        for (name, migration) in names.iter().zip(chunk) {
            all.push(advise(&statements[name], &observations.sizes, migration.knows_suite));
        }
    }
    all
}

/// Returns the transcript of a session. A statement such as `23502! ALTER …` fails with that SQLSTATE.
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
