//! Tests that `run` stores the suite's statements in the cache, and writes them to a file.

use std::collections::BTreeMap;
use std::fs;

use migrations::suite::SuiteRecording;
use storage::Cache;

use crate::common::ground::{program, psql};
use crate::common::{Outcome, Scene, User};

/// Project with a template.
struct Project(Scene);

impl Project {
    fn new() -> Self {
        let scene = Scene::new(User::Ourselves);
        scene.write("schema.sql", "CREATE TABLE orders (id bigint PRIMARY KEY, note text)");
        scene.write("pgfresh.toml", "[template]\nsql = [\"schema.sql\"]\n");
        Self(scene)
    }

    /// Runs `statements` as a test, then ends with `code`.
    fn run(&self, options: &[&str], statements: &str, code: u8) -> Outcome {
        self.0.write("statements.sql", statements);
        self.0.write("code", &code.to_string());
        let script = format!(
            "'{}' -XAtqd one -f statements.sql; '{}' release one --test test_one; exit $(cat code)",
            psql(),
            program().display()
        );
        self.0.run([&["run"], options, &["--", "sh", "-c", &script]].concat())
    }

    /// Returns the statements in the cache with their tests' names.
    fn kept(&self) -> BTreeMap<String, String> {
        let cache = Cache::locate(Some(&self.0.cache)).unwrap();
        SuiteRecording::of_project(&cache, &self.0.directory).unwrap().map(statements).unwrap_or_default()
    }
}

fn statements(recording: SuiteRecording) -> BTreeMap<String, String> {
    recording.statements.into_iter().map(|one| (one.normalized, one.tests.join(", "))).collect()
}

fn expected<const N: usize>(statements: [&str; N]) -> BTreeMap<String, String> {
    statements.into_iter().map(|text| (text.to_owned(), "test_one".to_owned())).collect()
}

const TWO: &str =
    "SELECT note FROM orders WHERE id = 1; SELECT note FROM orders WHERE id = 2; DELETE FROM orders;";
const ONE: &str = "SELECT id FROM orders;";

#[test]
fn profiles_keep_statements_for_the_project() {
    let project = Project::new();
    assert_eq!(project.run(&[], TWO, 0).code, Some(0));
    assert!(project.kept().is_empty());
    assert_eq!(project.run(&["--profile"], TWO, 0).code, Some(0));
    let all = expected(["SELECT note FROM orders WHERE id = ?", "DELETE FROM orders"]);
    assert_eq!(project.kept(), all);
    // A failed command might not have run all statements.
    assert_eq!(project.run(&["--profile"], ONE, 3).code, Some(3));
    assert_eq!(project.kept(), all);
    assert_eq!(project.run(&["--profile"], ONE, 0).code, Some(0));
    assert_eq!(project.kept(), expected(["SELECT id FROM orders"]));
}

#[test]
fn failed_command_is_better_than_no_recording() {
    let project = Project::new();
    assert_eq!(project.run(&["--profile"], ONE, 3).code, Some(3));
    assert_eq!(project.kept(), expected(["SELECT id FROM orders"]));
}

#[test]
fn file_of_statements_needs_no_profile() {
    let project = Project::new();
    let options = ["--statements", "statements.json"];
    let path = project.0.directory.join("statements.json");
    let outcome = project.run(&options, ONE, 4);
    let message = "did not write \"statements.json\", because the command failed";
    assert!(outcome.code == Some(4) && outcome.stderr.contains(message) && !path.exists(), "{outcome}");
    let outcome = project.run(&options, TWO, 0);
    let message = "wrote 2 statements to \"statements.json\"";
    assert!(outcome.code == Some(0) && outcome.stderr.contains(message), "{outcome}");
    let read = SuiteRecording::read(&path).unwrap();
    assert!(read.commands[0].starts_with("sh -c") && read.recorded > 1_700_000_000, "{read:?}");
    let all = expected(["SELECT note FROM orders WHERE id = ?", "DELETE FROM orders"]);
    assert_eq!(statements(read), all);
    assert_eq!(project.kept(), all);
}

#[test]
fn unusable_file_fails_before_the_command() {
    let project = Project::new();
    fs::create_dir(project.0.directory.join("folder")).unwrap();
    let outcome = project.run(&["--statements", "folder"], "SELECT 1", 0);
    let message = "could not write \"folder\": Is a directory";
    assert!(outcome.code == Some(125) && outcome.stderr.contains(message), "{outcome}");
    let outcome = project.run(&["--compare", "--statements", "file"], "SELECT 1", 0);
    assert!(outcome.code == Some(2) && outcome.stderr.contains("cannot be used with"), "{outcome}");
}
