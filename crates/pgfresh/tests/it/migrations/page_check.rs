//! Runs `migrate check` on the examples in docs/migrations.md: it warns about the dangerous statements, and
//! accepts the safe sequences.

use std::collections::BTreeSet;
use std::process::Command;

use migrations::AdviceTopic;
use serde_json::Value;

use super::advice::{SCHEMA, SUITE};
use super::page::{Example, examples};
use crate::common::{Scene, User, finish, postgres};

/// Runs each file in a separate database, which is a copy of the template.
const RUN: &str = "for file in examples/*.sql; do psql -X -q -d \"$(basename $file .sql)\" -f $file; done";

#[test]
fn check_warns_of_dangerous_examples() {
    let report = check(|example| !example.is_safe, &[]);
    let found: BTreeSet<String> = pages(&report).into_iter().collect();
    let topics = AdviceTopic::ALL.into_iter().filter(|topic| *topic != AdviceTopic::OldCode);
    let expected: BTreeSet<_> =
        topics.map(|topic| format!("docs/migrations.md#{}", topic.anchor())).collect();
    assert_eq!(found, expected);
}

#[test]
fn check_accepts_safe_examples() {
    let report = check(|example| example.is_safe, &["--statements", "suite.json"]);
    assert_eq!(pages(&report), Vec::<String>::new(), "{report:#}");
    let statements = report["statements"].as_array().unwrap();
    let altered =
        statements.iter().filter(|statement| statement["sql"].as_str().unwrap().starts_with("ALTER TABLE"));
    assert!(altered.count() > 20, "{report:#}");
}

#[test]
fn check_names_what_old_code_needs() {
    let old_code = |example: &Example| example.heading == AdviceTopic::OldCode.heading();
    let suite = ["--statements", "suite.json"];
    let report = check(|example| old_code(example) && !example.is_safe, &suite);
    assert_eq!(pages(&report), ["docs/migrations.md#old-code"], "{report:#}");
    let dropped =
        &report["statements"].as_array().unwrap().iter().find(|one| !one["breaks"][0].is_null()).unwrap();
    assert_eq!(dropped["sql"], "DROP FUNCTION orders_of(bigint)");
    assert_eq!(dropped["breaks"][0]["statement"], "SELECT orders_of(?)");
    let report = check(|example| old_code(example) && example.is_safe, &suite);
    assert!(!report.to_string().contains("breaks\":[{"), "{report:#}");
}

/// Returns the page links in all advice.
fn pages(report: &Value) -> Vec<String> {
    let statements = report["statements"].as_array().unwrap().iter();
    let advice = statements.flat_map(|statement| statement["advice"].as_array().unwrap());
    advice.map(|advice| advice["page"].as_str().unwrap().to_owned()).collect()
}

/// Checks some examples as one migration.
fn check(is_meant: impl Fn(&Example) -> bool, options: &[&str]) -> Value {
    let scene = Scene::new(User::Ourselves);
    scene.write("pgfresh.toml", "[template]\nsql = \"schema.sql\"\n");
    scene.write("schema.sql", SCHEMA);
    scene.write("suite.json", &format!(r#"{{"format": 1, "statements": [{{"text": "{SUITE}"}}]}}"#));
    let of_kind = examples().into_iter().filter(|example| is_meant(example) && example.first_major <= 15);
    for (number, example) in of_kind.enumerate() {
        let statements =
            example.migration.statements.iter().map(|statement| statement.trim_start_matches("55P04! "));
        let sql: String = statements.flat_map(|statement| [statement, ";\n"]).collect();
        scene.write(&format!("examples/example_{number}.sql"), &sql);
    }
    for words in [&["init", "--quiet"][..], &["add", "--all"], &["commit", "--quiet", "-m", "Schema"]] {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=tester", "-c", "user.email=tester@example.org"]).args(words);
        git.current_dir(&scene.directory).env("HOME", &scene.directory);
        let outcome = finish(git);
        assert_eq!(outcome.code, Some(0), "{words:?} {outcome}");
    }
    let words = ["migrate", "check", "--json", "--from", "HEAD", "--postgres", &postgres(15)];
    let command = ["--", "sh", "-c", RUN];
    let outcome = scene.run(words.iter().chain(options).chain(&command));
    assert_eq!(outcome.code, Some(0), "{outcome}");
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome}"))
}
